//go:build unix

package local

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
}

func prepareCommand(cmd *exec.Cmd, acct *account) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if acct != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: acct.uid, Gid: acct.gid, Groups: acct.groups}
	}
	return nil
}

func startGroup(cmd *exec.Cmd, marker string) (*group, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &group{cmd: cmd, marker: marker}, nil
}

func (g *group) terminate() {
	// Nobody gets it twice: it might be taken for impatience.
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGTERM)
	signalMarked(map[string]bool{g.marker: true}, syscall.SIGTERM, g.cmd.Process.Pid)
}

func (g *group) kill() {
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	// Whatever ended the step, this is seen through; it is bounded.
	_ = killMarked(nil, map[string]bool{g.marker: true})
}

// alive reports whether the group has a member.
func (g *group) alive() bool {
	return !errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH)
}

func (g *group) close() {}

// killRecorded kills the group of a process of which only the record is left.
func killRecorded(data processData) error {
	if start, err := processStart(data.PID); err != nil || start != data.Start {
		return nil // ended
	}
	err := syscall.Kill(-data.PID, syscall.SIGKILL)
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
