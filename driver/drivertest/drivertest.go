package drivertest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
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
	// Name is the name of the infrastructure in a report; see [ReportVariable]. It
	// may be empty.
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
	// Can lists the capabilities of the infrastructure. Cases that need another
	// capability do not run.
	Can []Capability
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

// Capability is a feature that some infrastructures do not support.
type Capability string

// Capabilities of a [Target].
const (
	// OOM: memory limits hold, and the driver reports a step that exceeded one.
	OOM Capability = "OOM"
	// Users: steps run as any numeric user and group.
	Users Capability = "Users"
	// Mounts: volumes are mounted at their path, and can be read-only. Without it, the
	// variable DLITE_VOLUME_<NAME> has the directory of a volume.
	Mounts Capability = "Mounts"
	// HostFolders: host volumes are directories of the machine that runs the test.
	HostFolders Capability = "HostFolders"
	// FolderRemoval: a cleanup removes host volumes that ask for it.
	FolderRemoval Capability = "FolderRemoval"
	// Names: steps reach background steps by id and by network alias, if the init
	// announced them.
	Names Capability = "Names"
	// IsolatedNetwork: steps cannot reach steps of other transactions.
	IsolatedNetwork Capability = "IsolatedNetwork"
	// Labels: the driver is a [driver.Finder] and its steps carry labels.
	Labels Capability = "Labels"
	// Interleaved: the output has the two streams of a step in the order of the writes
	// to both, not only to each one.
	Interleaved Capability = "Interleaved"
)

// testCase proves one behaviour of every driver.
type testCase struct {
	name  string // a sentence
	rule  string // ids of docs/rules.md, or a section of docs/protocol.md
	needs []Capability
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
	seen := &recorder{outcomes: map[string]CaseOutcome{}}
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
				seen.record(CaseOutcome{Name: c.name, Rule: c.rule, Lacks: lacking})
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() { seen.record(CaseOutcome{Name: c.name, Rule: c.rule, Passed: !t.Failed() && !t.Skipped()}) })
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

func (t Target) lacks(needs []Capability) []Capability {
	return slices.DeleteFunc(slices.Clone(needs), t.can)
}

func (t Target) can(c Capability) bool { return slices.Contains(t.Can, c) }

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
