package drivertest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// TransactionVariable is a variable of each step that the suite runs. Its value
// is the id of the transaction. A [Site] uses it to find the processes of the
// step without the driver.
const TransactionVariable = "DRIVERTEST_TRANSACTION"

// Target describes an infrastructure and its driver.
type Target struct {
	// Name is the name of the infrastructure in a report. If it is not empty, and the
	// environment variable DLITE_CONFORMANCE_DIR names a directory, [Run] writes the
	// results of the cases to <directory>/<Name>.json, and marks those that the flag
	// -run excluded.
	Name string
	// Site prepares the infrastructure for one case. It is called for several cases
	// at once. It must remove its resources at the end of tb, and must fail tb if
	// resources remain that belong to no transaction.
	Site func(tb testing.TB) Site
	// Step completes a step that has an id and a command line, for
	// example with an image. Steps use the programs of a POSIX shell and of busybox.
	// Nil changes nothing.
	Step func(step *stage.Step)
	// Only, if not nil, selects cases by name, when another target of the same driver
	// runs the others. Run writes no report then.
	Only func(name string) bool
	// Can has the capabilities of the infrastructure. Cases that need another
	// capability do not run.
	Can Capabilities
}

// Site is the infrastructure of one case. All methods except Driver inspect the
// infrastructure itself and never call a driver. They are safe for concurrent use.
type Site interface {
	// Driver returns a driver as a new process of the delegate would create it: the
	// drivers of a site share the infrastructure and nothing else. The suite closes
	// a driver that is an [io.Closer].
	Driver(tb testing.TB) driver.Driver
	// Running returns the processes, containers or pods of a transaction that run.
	Running(tb testing.TB, transaction string) []string
	// Remains returns all other resources of a transaction that exist, such as
	// networks and directories, and also the running ones that have a name, such as
	// containers and pods.
	Remains(tb testing.TB, transaction string) []string
	// Has reports whether a recorded resource exists.
	Has(tb testing.TB, r driver.Resource) bool
	// Traces returns the places where text can be read now: command lines, and
	// files on disk that belong to the site.
	Traces(tb testing.TB, text string) []string
}

// Capabilities are features that some infrastructures do not support.
type Capabilities struct {
	// OOM means that memory limits hold, and that the driver reports a step that
	// exceeded one.
	OOM bool
	// Users means that steps run as any numeric user and group.
	Users bool
	// Mounts means that volumes are mounted at their path, and can be read-only.
	// Without it, the variable DLITE_VOLUME_<NAME> has the directory of a volume.
	Mounts bool
	// HostFolders means that host volumes are directories of the machine that runs
	// the test.
	HostFolders bool
	// FolderRemoval means that a cleanup removes host volumes that ask for it.
	FolderRemoval bool
	// Names means that steps reach background steps by id and by network alias, if
	// the init announced them.
	Names bool
	// IsolatedNetwork means that steps cannot reach steps of other transactions.
	IsolatedNetwork bool
	// Separated means that steps cannot read files and processes of other
	// transactions.
	Separated bool
	// Labels means that the driver is a [driver.Finder] and its steps carry labels.
	Labels bool
	// Interleaved means that the output has the two streams of a step in the order of
	// the writes to both, not only to each one.
	Interleaved bool
}

// testCase proves one behaviour of every driver.
type testCase struct {
	name  string // a sentence
	rule  string // ids of docs/rules.md, or a section of docs/protocol.md
	needs Capabilities
	// joint means that the case shares a transaction with other cases. This is like
	// a real stage, and saves an init. Such a case must not change the working
	// directory.
	joint bool
	run   func(s *stand)
}

// Run runs all cases that target supports as parallel subtests and returns when
// they are done. A subtest has the name of its case. The log lists the cases that
// did not run, with the missing capabilities.
//
// Run sets an environment variable of this process, so t must not be parallel.
func Run(t *testing.T, target Target) {
	t.Helper()
	t.Setenv(delegateVariable, delegateValue)
	seen := &recorder{outcomes: map[string]caseOutcome{}}
	if target.Only == nil {
		defer seen.write(t, target.Name)
	}
	t.Run("cases", func(t *testing.T) {
		joint := newStand(t, target).begin()
		var omitted []string
		for _, c := range cases() {
			if target.Only != nil && !target.Only(c.name) {
				continue
			}
			if lacking := target.lacks(c.needs); len(lacking) > 0 {
				omitted = append(omitted, fmt.Sprintf("%q needs %v", c.name, lacking))
				seen.record(caseOutcome{Name: c.name, Rule: c.rule, Lacks: lacking})
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() { seen.record(caseOutcome{Name: c.name, Rule: c.rule, Passed: !t.Failed() && !t.Skipped()}) })
				if c.joint {
					c.run(&stand{T: t, target: target, site: joint.site, d: joint.d, joint: joint})
					return
				}
				c.run(newStand(t, target))
			})
		}
		if len(omitted) > 0 {
			t.Logf("%d cases did not run, because this target lacks a capability: %s", len(omitted), strings.Join(omitted, "; "))
		}
	})
}

// A variable of the process that runs the driver. It must not reach a step.
const (
	delegateVariable = "DRIVERTEST_DELEGATE_TOKEN"
	delegateValue    = "not-for-any-step"
)

// lacks returns the names of the capabilities that a case needs and t does not have.
func (t Target) lacks(needs Capabilities) []string {
	var lacking []string
	need, can := reflect.ValueOf(needs), reflect.ValueOf(t.Can)
	for i := range need.NumField() {
		if need.Field(i).Bool() && !can.Field(i).Bool() {
			lacking = append(lacking, need.Type().Field(i).Name)
		}
	}
	return lacking
}

func cases() []testCase {
	return slices.Concat(
		exitCases(), outputCases(), commandCases(), environmentCases(), handoverCases(), readOutCases(),
		fileCases(), volumeCases(), stopCases(), detachedCases(), ledgerCases(), cleanupCases(), parallelCases(),
	)
}

func randomHex() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // documented to never fail
	return hex.EncodeToString(b)
}
