package cgi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/internal/process"
)

// deps are the packages that a task.yml needs on the machine, by package manager.
type deps struct {
	Apt  []dep `yaml:"apt"`
	Brew []dep `yaml:"brew"`
}

// dep is the name of a package. In YAML it is a string or a map with a name.
type dep string

// UnmarshalYAML decodes both forms.
func (d *dep) UnmarshalYAML(decode func(any) error) error {
	if decode((*string)(d)) == nil {
		return nil
	}
	var named struct {
		Name string `yaml:"name"`
	}
	err := decode(&named)
	*d = dep(named.Name)
	return err
}

// packageName matches the names that may be installed: a name, for apt with an optional
// version, for brew with an optional tap. It matches neither options nor files.
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+._@-]*(/[a-z0-9][a-z0-9+._@-]*)*(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]+)?$`)

// install installs the packages for the package manager of this machine.
func (h *Handler) install(ctx context.Context, d deps, log *taskLog) error {
	manager, list := "", []dep(nil)
	switch runtime.GOOS {
	case "linux":
		manager, list = "apt-get", d.Apt
	case "darwin":
		manager, list = "brew", d.Brew
	}
	if len(list) == 0 {
		return nil
	}
	names := make([]string, len(list))
	for i, one := range list {
		if names[i] = string(one); !packageName.MatchString(names[i]) {
			return fmt.Errorf("%s: %q is not the name of a package", taskFile, names[i])
		}
	}
	if !h.cfg.InstallDeps {
		log.say("The dependencies that %s names are not installed: that is up to who runs this machine", taskFile)
		return nil
	}
	if manager == "brew" {
		return h.manage(ctx, log, append([]string{"brew", "install", "--"}, names...))
	}
	if h.installed(ctx, names, log) {
		return nil
	}
	apt := []string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"}
	if os.Geteuid() != 0 {
		apt = append([]string{"sudo", "-n"}, apt...)
	}
	if err := h.manage(ctx, log, append(slices.Clone(apt), "update")); err != nil {
		return err
	}
	return h.manage(ctx, log, append(append(apt, "install", "--"), names...))
}

// installed reports whether all Debian packages are installed already. It returns false
// for a name with a version, which apt must compare.
func (h *Handler) installed(ctx context.Context, names []string, log *taskLog) bool {
	query, err := exec.LookPath("dpkg-query")
	if err != nil {
		return false
	}
	out := &limited{max: 1 << 20}
	cmd := &exec.Cmd{Path: query, Args: append([]string{query, "-W", "-f", "${db:Status-Status}\n", "--"}, names...), Env: h.buildEnvironment()}
	state, err := h.exec(ctx, cmd, nil, out, log)
	return err == nil && process.Code(state) == 0 && strings.Count(string(out.b), "installed\n") == len(names) &&
		!strings.Contains(string(out.b), "not-installed")
}

// manage runs a package manager.
func (h *Handler) manage(ctx context.Context, log *taskLog, args []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return errors.New(args[0] + " is needed for the dependencies, and is not in the PATH of the delegate")
	}
	log.say("Running %s", strings.Join(args, " "))
	state, err := h.exec(ctx, &exec.Cmd{Path: program, Args: args, Env: h.buildEnvironment()}, nil, log, log)
	if err != nil {
		return fmt.Errorf("install the dependencies: %w", err)
	}
	if code := process.Code(state); code != 0 {
		return withLastLine(fmt.Errorf("install the dependencies: exit code %d", code), log.last)
	}
	return nil
}
