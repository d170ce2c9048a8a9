//go:build unix

package process

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// Account is a user to run a process as.
type Account struct {
	// Name and Home are for the environment of the process.
	Name, Home string

	uid, gid uint32
	groups   []uint32
}

func (a *Account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

// FindAccount reads "name", "uid", "name:group" or "uid:group". It returns nil for "" and for the user
// of this process. A user has its supplementary groups. An unknown uid has none, and its group is its
// own number unless spec names a group.
func FindAccount(spec string) (*Account, error) {
	if spec == "" {
		return nil, nil
	}
	name, groupName, hasGroup := strings.Cut(spec, ":")
	acct := &Account{Name: name, Home: "/"}
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
		acct.Name, acct.Home = u.Username, u.HomeDir
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

// NumberedAccount returns the user with a number that no list of users has. Its group has the same number,
// and it has no other groups. It returns nil for "".
func NumberedAccount(number string) (*Account, error) {
	if number == "" {
		return nil, nil
	}
	id, err := parseID(number)
	if err != nil {
		return nil, err
	}
	return &Account{Name: number, Home: "/", uid: id, gid: id}, nil
}

func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
