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

// TransactionVariable is in the environment of every step that the suite runs
// and holds the transaction's id, so that a [Site] finds the step's processes
// without the driver's help.
const TransactionVariable = "DRIVERTEST_TRANSACTION"

// Target is an infrastructure and the driver for it.
type Target struct {
	// Name is the infrastructure's, for a report; see [ReportVariable]. It may be
	// empty.
	Name string
	// Site prepares a place for one case. It may be called at any time, also for
	// several cases at once. What it makes ends with tb, and it fails tb when
	// there is something left that no transaction accounts for.
	Site func(tb testing.TB) Site
	// Step completes a step that has an id and a command line, with the image
	// for example. Programs of the steps are those of a POSIX shell and of
	// busybox. Nil leaves the steps as they are.
	Step func(step *stage.Step)
	// Only, if not nil, chooses cases by their names, where another target of the same
	// driver has shown what the rest would. No report is made then.
	Only func(name string) bool
	// Can is what the infrastructure is able to do. A case that needs more is
	// not run.
	Can []Capability
}

// Site is where one case runs. Its methods but Driver look at the infrastructure
// itself and never ask a driver. They are safe for concurrent use.
type Site interface {
	// Driver makes a driver as a new process of the delegate would have it: all
	// drivers of a site share the infrastructure and nothing else. The suite
	// closes it where it is an [io.Closer].
	Driver(tb testing.TB) driver.Driver
	// Running lists the processes, containers or pods of a transaction that run.
	Running(tb testing.TB, transaction string) []string
	// Remains lists everything else that exists of a transaction, and what runs
	// once more where it has a name: containers, networks, folders, pods.
	Remains(tb testing.TB, transaction string) []string
	// Has reports whether a recorded resource exists.
	Has(tb testing.TB, r driver.Resource) bool
	// Traces lists where text can be read now: command lines, and files on disk
	// that belong to the site.
	Traces(tb testing.TB, text string) []string
}

// Capability is something that not every infrastructure can do.
type Capability string

// What a [Target] may be able to do.
const (
	// OOM: a memory limit holds, and a step that was killed for it is told.
	OOM Capability = "OOM"
	// Users: steps run as any numeric user and group.
	Users Capability = "Users"
	// Mounts: volumes are at their mount's path, and read-only is honoured.
	// Without it a step finds a volume's folder in DLITE_VOLUME_<NAME>.
	Mounts Capability = "Mounts"
	// HostFolders: host volumes are folders of the machine that runs the test.
	HostFolders Capability = "HostFolders"
	// FolderRemoval: a host volume to remove goes with its transaction.
	FolderRemoval Capability = "FolderRemoval"
	// Names: steps reach background steps that were announced to the init by id and by
	// network alias.
	Names Capability = "Names"
	// IsolatedNetwork: steps of another transaction cannot be reached at all.
	IsolatedNetwork Capability = "IsolatedNetwork"
	// Labels: the driver is a [driver.Finder] and its steps carry labels.
	Labels Capability = "Labels"
	// Interleaved: both streams of a step come in the order in which they were
	// written, not just each one of them.
	Interleaved Capability = "Interleaved"
)

// testCase is one behaviour that every driver has.
type testCase struct {
	name  string // a sentence
	spec  string // ids of SPEC, or the page that it comes from
	needs []Capability
	// joint says that the case's steps may share a transaction with those of
	// other cases, which is what real stages look like, and saves an init. Such a
	// case leaves the working directory to others.
	joint bool
	run   func(s *stand)
}

// Run runs all cases that target can, each as a subtest in parallel, and returns
// when they are done. The name of a subtest is the case's. The log says which
// cases were left out for want of a capability.
//
// Run sets a variable of this process for its duration, so that t must not be
// parallel.
func Run(t *testing.T, target Target) {
	t.Helper()
	t.Setenv(delegateVariable, delegateValue)
	seen := &recorder{outcomes: map[string]CaseOutcome{}}
	if target.Only == nil {
		defer seen.write(t, target.Name)
	}
	t.Run("cases", func(t *testing.T) {
		joint := newStand(t, target).begin()
		var left []string
		for _, c := range cases() {
			if target.Only != nil && !target.Only(c.name) {
				continue
			}
			if lacking := target.lacks(c.needs); len(lacking) > 0 {
				left = append(left, fmt.Sprintf("%q needs %v", c.name, lacking))
				seen.keep(CaseOutcome{Name: c.name, Spec: c.spec, Lacks: lacking})
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() { seen.keep(CaseOutcome{Name: c.name, Spec: c.spec, Passed: !t.Failed() && !t.Skipped()}) })
				if c.joint {
					c.run(&stand{T: t, target: target, site: joint.site, d: joint.d, joint: joint})
					return
				}
				c.run(newStand(t, target))
			})
		}
		if len(left) > 0 {
			t.Logf("%d cases are not for this target: %s", len(left), strings.Join(left, "; "))
		}
	})
}

// delegateVariable is in the environment of the process that runs the driver.
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
	_, _ = rand.Read(b) // never fails, says its documentation
	return hex.EncodeToString(b)
}
