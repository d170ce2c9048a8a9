package podagent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// names manages the names in the hosts file of the pod. All containers of the pod share the
// file, and the node replaces it whenever one of them starts.
type names struct {
	file string
	// fixed means that this process may not change the file, because it is not root.
	fixed bool

	mu    sync.Mutex
	hosts []Host // guarded by mu, which is also held while the file is changed
}

func newNames(file string) *names {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_ = f.Close()
	}
	return &names{file: file, fixed: errors.Is(err, fs.ErrPermission)}
}

func (n *names) list() Names {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Names{Hosts: slices.Clone(n.hosts), Fixed: n.fixed}
}

// add adds names. It updates the address of a name that exists.
func (n *names) add(hosts []Host) error {
	for _, h := range hosts {
		if h.Name == "" || h.Address == "" || strings.ContainsAny(h.Name+h.Address, " \t\n#") {
			return fmt.Errorf("name %q with address %q is not valid in a hosts file", h.Name, h.Address)
		}
	}
	n.mu.Lock()
	for _, h := range hosts {
		n.hosts = slices.DeleteFunc(n.hosts, func(old Host) bool { return old.Name == h.Name })
		n.hosts = append(n.hosts, h)
	}
	n.mu.Unlock()
	return n.apply()
}

// mark ends each line that the hub adds.
const mark = " # dlite"

// apply appends the missing lines to the file.
func (n *names) apply() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fixed || len(n.hosts) == 0 {
		return nil
	}
	content, err := os.ReadFile(n.file)
	if err != nil {
		return fmt.Errorf("names of the steps: %w", err)
	}
	there := strings.Split(string(content), "\n")
	var more strings.Builder
	for _, h := range n.hosts {
		line := h.Address + "\t" + h.Name + mark
		if !slices.Contains(there, line) {
			more.WriteString(line + "\n")
		}
	}
	if more.Len() == 0 {
		return nil
	}
	text := more.String()
	if len(content) > 0 && content[len(content)-1] != '\n' {
		text = "\n" + text
	}
	f, err := os.OpenFile(n.file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("names of the steps: %w", err)
	}
	_, err = io.WriteString(f, text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("names of the steps: %w", err)
	}
	return nil
}
