//go:build unix

package upgrade

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// trialVariable is set in the process of a trial: the descriptor of its connection to the old program.
const trialVariable = "DLITE_UPGRADE_TRIAL"

// Limits of the starts that an upgrade may take. Each interrupted one counts.
const (
	maxTrials = 3
	maxStarts = 3
)

// Process tells the running program its part in an upgrade. The zero value has none.
type Process struct {
	place   place
	journal *Journal // nil without an upgrade that this process must prove
	trial   *os.File // nil outside of a trial
}

// Trial reports whether the process runs only to prove that it can register. It must take no new work.
func (p *Process) Trial() bool { return p.trial != nil }

// Begin continues the upgrade of the running program. Call it in main before the program does anything else, and only
// if the program is going to serve, with its version. In a trial and in a rollback it replaces the process, and does not return. Problems
// are written to standard error: an upgrade must not keep a program from its work.
func Begin(version string) *Process {
	reapInherited()
	p, err := ownPlace()
	if err == nil {
		if text, ok := os.LookupEnv(trialVariable); ok {
			return joinTrial(p, text)
		}
		if err = p.launch(version); err == nil {
			var process *Process
			if process, err = p.begin(version); err == nil {
				return process
			}
		}
	}
	if !errors.Is(err, ErrBusy) { // then another process of the program has the upgrade
		printf("the upgrade is not continued: %v", err)
	}
	return &Process{}
}

func printf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "upgrade: "+format+"\n", args...)
}

// startedVariable is set in a process whose start the fixed program has counted.
const startedVariable = "DLITE_UPGRADE_STARTED"

// launch replaces the fixed program of a service by the program in the place, if there is one and it is not older. The
// fixed program never changes, so it also counts the starts of a new program and takes the previous one back.
func (p place) launch(version string) error {
	if p.fixed == "" {
		return nil
	}
	j, err := p.read()
	if err != nil || j == nil {
		return err
	}
	if _, err := os.Stat(p.program); err != nil {
		return ignoreMissing(err)
	}
	environ := os.Environ()
	switch j.Phase {
	case Probation, Rollback:
		unlock, err := p.lockUpgrades()
		if err != nil {
			return err
		}
		defer unlock()
		if j.Phase == Rollback || j.Starts >= maxStarts {
			return p.rollBack(j, cmp.Or(j.Reason, fmt.Sprintf("it was started %d times and did not register", j.Starts)))
		}
		j.Starts++
		if err := p.write(j); err != nil {
			return err
		}
		step("launched")
		environ = append(environ, startedVariable+"=1")
	case Done:
		if Older(j.Version, version) {
			return nil
		}
	case Swap:
		if _, err := os.Stat(p.next()); err == nil && j.From == version {
			return nil
		}
	default:
		if j.From == version || Older(j.From, version) {
			return nil
		}
	}
	return retryBusy(context.Background(), func() error { return syscall.Exec(p.program, os.Args, environ) })
}

// begin continues the upgrade in the phase of the journal.
func (p place) begin(version string) (*Process, error) {
	j, err := p.read()
	if err != nil || j == nil || j.final() {
		return &Process{}, err
	}
	unlock, err := p.lockUpgrades()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if j, err = p.read(); err != nil || j == nil || j.final() {
		return &Process{}, err
	}
	step("begin " + j.Phase)
	if other := j.otherProgram(version, p); other != "" {
		return &Process{}, p.fail(j, other)
	}
	switch j.Phase {
	case Staged, Trial:
		err = p.tryOut(j)
	case Swap:
		err = p.swap(j)
	case Probation:
		if j.Starts < maxStarts || os.Getenv(startedVariable) != "" {
			if os.Getenv(startedVariable) == "" {
				j.Starts++
				if err := p.write(j); err != nil {
					return nil, err
				}
			}
			step("probation")
			return &Process{place: p, journal: j}, nil
		}
		err = p.rollBack(j, fmt.Sprintf("it was started %d times and did not register", j.Starts))
	case Rollback:
		err = p.rollBack(j, j.Reason)
	default:
		return nil, fmt.Errorf("the journal of upgrades %s has the unknown phase %.80q: remove it", p.journal(), j.Phase)
	}
	if err != nil {
		return nil, err
	}
	return &Process{}, nil
}

// otherProgram returns why the running version has nothing to do with the upgrade: an operator has replaced the program by
// other means meanwhile.
func (j *Journal) otherProgram(version string, p place) string {
	_, err := os.Stat(p.next())
	expected := j.From
	switch j.Phase {
	case Swap:
		if err != nil {
			expected = j.Version
		}
	case Probation:
		expected = j.Version
	case Rollback:
		return "" // either of the two
	}
	if version == expected {
		return ""
	}
	return fmt.Sprintf("is given up: the program has become %s by other means", version)
}

// tryOut lets the new program register beside the old one, which is this process. If it does, the new one takes the
// place. Otherwise the upgrade has failed and this process continues as before.
func (p place) tryOut(j *Journal) error {
	if j.Trials >= maxTrials {
		return p.fail(j, fmt.Sprintf("its trial was interrupted %d times", j.Trials))
	}
	j.Trials++
	if err := p.enter(j, Trial, ""); err != nil {
		return err
	}
	step("trial")
	printf("trying %s: it has %s to register", j.Version, j.bound())
	if err := p.try(j); err != nil {
		return p.fail(j, err.Error())
	}
	step("tried")
	return p.swap(j)
}

// fail ends an upgrade. The old program stays in its place.
func (p place) fail(j *Journal, reason string) error {
	printf("%s stays: %s %s", j.From, j.Version, reason)
	j.Failures++
	if err := p.enter(j, Failed, reason); err != nil {
		return err
	}
	step("failed")
	return ignoreMissing(os.Remove(p.next()))
}

// swap gives the new program its place and starts it. After a kill it continues where it was: the name of the staged
// file exists until the file has the place.
func (p place) swap(j *Journal) error {
	if j.Phase != Swap {
		if err := p.enter(j, Swap, ""); err != nil {
			return err
		}
	}
	step("swap")
	if _, err := os.Stat(p.next()); err == nil {
		if err := p.duplicate(p.old(), p.previous()); err != nil {
			return fmt.Errorf("keep the previous program: %w", err)
		}
		step("kept")
		if err := os.Rename(p.next(), p.program); err != nil {
			return fmt.Errorf("replace the program: %w", err)
		}
		step("replaced")
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := syncDir(p.dir()); err != nil {
		return err
	}
	j.Starts = 0
	if err := p.enter(j, Probation, ""); err != nil {
		return err
	}
	step("swapped")
	printf("%s replaces %s", j.Version, j.From)
	return p.exec()
}

// rollBack gives the previous program its place back and starts it.
func (p place) rollBack(j *Journal, reason string) error {
	if err := p.enter(j, Rollback, reason); err != nil {
		return err
	}
	step("rollback")
	if err := p.duplicate(p.previous(), p.program); err != nil {
		return fmt.Errorf("take the previous program back: %w", err)
	}
	step("back")
	if err := p.fail(j, reason); err != nil {
		return err
	}
	return p.exec()
}

// exec replaces this process by the program in its place, with the same arguments.
func (p place) exec() error { return execute(p.program) }

// again replaces this process by the same program.
func (p place) again() error { return execute(p.old()) }

func execute(program string) error {
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, startedVariable+"=") })
	return retryBusy(context.Background(), func() error { return syscall.Exec(program, os.Args, environ) })
}

// verifyStaged checks that the staged file is the one that was verified.
func (p place) verifyStaged(j *Journal) error {
	f, err := os.Open(p.next())
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != j.SHA256 {
		return errors.New("was changed after it had been verified")
	}
	return nil
}

// registered is the message of a trial process to the old program.
const registered = "registered\n"

// joinTrial returns the part of a process that the old program has started. It ends when the old program does.
func joinTrial(p place, text string) *Process {
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		printf("%s is not a descriptor: this variable is for the program alone", trialVariable)
		os.Exit(1)
	}
	syscall.CloseOnExec(fd)
	return &Process{place: place{program: strings.TrimSuffix(p.program, ".new")}, trial: os.NewFile(uintptr(fd), "trial")}
}

// Prove must be called in a separate goroutine when the program begins to serve. When isRegistered is closed, it records
// that the new program works. In a trial it then ends this process, or calls leave, when the old program says so. If the
// program does not register in time, Prove takes the previous one back, which replaces this process. It returns when
// ctx ends.
func (p *Process) Prove(ctx context.Context, isRegistered <-chan struct{}, leave func()) error {
	switch {
	case p.trial != nil:
		return p.proveTrial(ctx, isRegistered, leave)
	case p.journal == nil:
		return nil
	}
	late := time.NewTimer(p.journal.bound())
	defer late.Stop()
	select {
	case <-ctx.Done():
		return nil // the start counts
	case <-isRegistered:
	case <-late.C:
	}
	step("registered")
	unlock, err := p.place.lockUpgrades()
	if err != nil {
		return err
	}
	defer unlock()
	select {
	case <-isRegistered:
	default:
		return p.place.rollBack(p.journal, fmt.Sprintf("did not register within %s", p.journal.bound()))
	}
	p.journal.Failures = 0
	if err := p.place.enter(p.journal, Done, ""); err != nil {
		return err
	}
	step("done")
	return nil
}

func (p *Process) proveTrial(ctx context.Context, isRegistered <-chan struct{}, leave func()) error {
	over := make(chan struct{})
	go func() { // ends with the process: nothing else can wait for the old program
		_, _ = io.Copy(io.Discard, p.trial)
		leave()
		close(over)
	}()
	select {
	case <-isRegistered:
	case <-over:
		return nil
	case <-ctx.Done():
		return nil
	}
	if _, err := io.WriteString(p.trial, registered); err != nil {
		return err
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// Replace does nothing: a process of the program replaces itself.
func Replace(string) error { return nil }
