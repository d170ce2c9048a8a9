package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Interfaces returns the engine's network interfaces except the loopback: a bridge for each
// network, and one interface for each container on a network.
func (p *Private) Interfaces() []string {
	p.tb.Helper()
	var names []string
	for line := range strings.Lines(p.proc("net/dev")) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" {
			names = append(names, name)
		}
	}
	return names
}

// Mounts returns the paths where the engine has mounted file systems for containers.
func (p *Private) Mounts() []string {
	p.tb.Helper()
	var places []string
	for line := range strings.Lines(p.proc("mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], p.dir+"/") {
			places = append(places, f[4])
		}
	}
	return places
}

// Rules returns the engine's packet filter rules. It has some if it was started with
// "--iptables=true".
func (p *Private) Rules() string {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(p.init.Process.Pid), "-m", "-n", "iptables-save").Output()
	if err != nil {
		p.tb.Fatalf("list the engine's packet filter rules: %v", err)
	}
	return string(out)
}

// Cgroups returns the control groups of containers, with their processes. An engine that is
// killed between creating a container's first process and starting it leaves the process
// waiting in runc. Cgroups ignores such processes.
func (p *Private) Cgroups() map[string][]string {
	p.tb.Helper()
	found := map[string][]string{}
	for _, pattern := range []string{"/sys/fs/cgroup/%s/*", "/sys/fs/cgroup/*/%s/*"} {
		dirs, _ := filepath.Glob(fmt.Sprintf(pattern, p.name)) // the pattern is valid
		for _, dir := range dirs {
			procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, pid := range strings.Fields(string(procs)) {
				comm, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
				if name := strings.TrimSpace(string(comm)); name != "" && !strings.HasPrefix(name, "runc:[") {
					found[filepath.Base(dir)] = append(found[filepath.Base(dir)], name)
				}
			}
		}
	}
	return found
}

// proc reads a file of the first process in the engine's namespaces.
func (p *Private) proc(name string) string {
	p.tb.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.init.Process.Pid), name))
	if err != nil {
		p.tb.Fatalf("look into the engine's namespaces: %v", err)
	}
	return string(b)
}
