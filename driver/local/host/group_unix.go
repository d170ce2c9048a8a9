//go:build unix

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// group is a process group and, on Linux, those who left it.
type group struct {
	cmd    *exec.Cmd
	marker string
	cg     *cgroup // nil where there is none
}

func prepareCommand(cmd *exec.Cmd, acct *account) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if acct != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: acct.uid, Gid: acct.gid, Groups: acct.groups}
	}
	return nil
}

// startGroup starts cmd in cg, which it makes, or without where the system does
// not let us. A nil cg is none.
func startGroup(cmd *exec.Cmd, marker string, cg *cgroup) (*group, error) {
	if cg != nil {
		err := cg.make()
		if err == nil {
			if err = cg.start(cmd); err == nil {
				return &group{cmd: cmd, marker: marker, cg: cg}, nil
			}
			_ = cg.remove()
		}
		if errors.Is(err, syscall.ETXTBSY) {
			return nil, err
		}
		*cmd = fresh(cmd)
		if cg.outside != nil {
			if recordErr := cg.outside(); recordErr != nil {
				return nil, recordErr
			}
		}
		if startErr := cmd.Start(); startErr != nil {
			return nil, startErr // it was not the control group's fault
		}
		cg.all.giveUp()
		return &group{cmd: cmd, marker: marker}, nil
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &group{cmd: cmd, marker: marker}, nil
}

// join starts cmd among what g holds together, in a process group of its own:
// killing the returned group kills that alone, while what cmd leaves behind goes
// with g.
func (g *group) join(cmd *exec.Cmd) (*group, error) {
	start := cmd.Start
	if g.cg != nil {
		start = func() error { return g.cg.start(cmd) }
	}
	if err := start(); err != nil {
		return nil, err
	}
	return &group{cmd: cmd}, nil
}

func (g *group) terminate() {
	// Nobody gets it twice: it might be taken for impatience.
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM)
	if g.cg != nil {
		g.cg.signal(syscall.SIGTERM, g.cmd.Process.Pid)
		return
	}
	signalMarked(map[string]bool{g.marker: true}, syscall.SIGTERM, g.cmd.Process.Pid)
}

func (g *group) kill() {
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	// Whatever ended the step, this is seen through; it is bounded. What Cleanup
	// has to look at again is on record.
	if g.cg != nil {
		if !g.cg.vacate() {
			_ = g.cg.kill(nil)
		}
	} else if g.marker != "" {
		_ = killMarked(nil, map[string]bool{g.marker: true})
	}
}

// alive reports whether the group has a member.
func (g *group) alive() bool {
	return g.cg.populated() || !errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH)
}

// left reports whether anything of the step is still there after its first
// process has ended.
func (g *group) left() bool {
	return g.alive() || g.cg == nil && signalMarked(map[string]bool{g.marker: true}, 0, 0) > 0
}

// close removes the control group. One that a service still lives in stays until
// Cleanup.
func (g *group) close() { _ = g.cg.remove() }

// killRecorded kills the group of a process of which only the record is left.
func killRecorded(data processData) error { return signalRecorded(data, syscall.SIGKILL) }

func signalRecorded(data processData, sig syscall.Signal) error {
	if data.PID <= 1 || !runs(data) {
		return nil // ended
	}
	err := syscall.Kill(-data.PID, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// exitCode is the shell's: a signal counts as 128 plus its number.
func exitCode(s *os.ProcessState) int {
	if s == nil {
		return 255
	}
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// account is a user to run a step as.
type account struct {
	uid, gid   uint32
	groups     []uint32
	name, home string
}

// findAccount understands "name", "uid", and both with ":group". It gives nil
// for nobody in particular, and for the user that we are already. A user has its
// supplementary groups; an unknown uid has none, and its own number as the group
// unless one is given.
func findAccount(spec string) (*account, error) {
	if spec == "" {
		return nil, nil
	}
	name, groupName, hasGroup := strings.Cut(spec, ":")
	acct := &account{name: name, home: "/"}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err == nil {
		if acct.uid, err = parseID(u.Uid); err != nil {
			return nil, err
		}
		if acct.gid, err = parseID(u.Gid); err != nil {
			return nil, err
		}
		acct.name, acct.home = u.Username, u.HomeDir
		ids, err := u.GroupIds()
		if err != nil {
			return nil, fmt.Errorf("groups of user %q: %w", name, err)
		}
		for _, id := range ids {
			gid, err := parseID(id)
			if err != nil {
				return nil, err
			}
			acct.groups = append(acct.groups, gid)
		}
	} else {
		if acct.uid, err = parseID(name); err != nil {
			return nil, fmt.Errorf("user %q is not known on this machine", name)
		}
		acct.gid = acct.uid
	}
	if hasGroup {
		if gr, err := user.LookupGroup(groupName); err == nil {
			groupName = gr.Gid
		}
		if acct.gid, err = parseID(groupName); err != nil {
			return nil, fmt.Errorf("group %q is not known on this machine", groupName)
		}
	}
	if int(acct.uid) == os.Geteuid() && !hasGroup {
		return nil, nil
	}
	return acct, nil
}

func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
