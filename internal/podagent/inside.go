package podagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Inside adapts d, a driver for processes of this machine, to a container with one step.
// The step gets the variables of the image, and may have files at any path. Inside reports
// when the step runs out of memory, and kills all processes of the step when it ends.
// environ are the variables of this process.
func Inside(d driver.Driver, environ []string) driver.Driver {
	return &inside{Driver: d, image: imageVariables(environ)}
}

type inside struct {
	driver.Driver
	image map[string]string
}

// imageVariables returns the variables without those of the agent.
func imageVariables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, v := range environ {
		name, value, ok := strings.Cut(v, "=")
		if ok && name != "" && !strings.HasPrefix(name, "DLITE_POD_") {
			vars[name] = value
		}
	}
	return vars
}

// Execute implements [driver.Driver].
func (i *inside) Execute(ctx context.Context, env *driver.Environment, step *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	within, one := *env, *step
	within.Envs = maps.Clone(i.image)
	if step.User != "" && within.Envs["HOME"] == ownHome() {
		delete(within.Envs, "HOME") // set by the runtime for the user of the agent
	}
	maps.Copy(within.Envs, env.Envs)
	trustWorkspace(within.Envs, step)
	var err error
	if one.Files, err = writeOutside(step.Files); err != nil {
		return nil, fmt.Errorf("step %q: %w", step.ID, err)
	}
	before := oomKills()
	res, err := i.Driver.Execute(ctx, &within, &one, out, l)
	if err == nil && res.Detached {
		return res, nil
	}
	killRest()
	if err == nil && oomKills() > before {
		res.OOMKilled = true
		if res.ExitCode == 0 {
			res.ExitCode = 137 // the step ignored it, but its result is not complete
		}
	}
	return res, err
}

// trustWorkspace lets git work in the workspace for users that do not own it: the directory
// belongs to root, whatever the user of the step and of the clone is. It changes nothing if
// the step configures git by variables.
func trustWorkspace(vars map[string]string, step *driver.Step) {
	const count = "GIT_CONFIG_COUNT"
	if os.Geteuid() == 0 && step.User == "" || vars[count] != "" || step.Environment[count] != "" {
		return
	}
	vars[count] = "1"
	vars["GIT_CONFIG_KEY_0"], vars["GIT_CONFIG_VALUE_0"] = "safe.directory", Workspace
}

// ownHome returns the home that the runtime of the container sets for this process if the
// image has none.
func ownHome() string {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "/"
	}
	return u.HomeDir
}

// writeOutside writes the files outside the workspace, in the file system of the container,
// and returns the others.
func writeOutside(files []*stage.File) ([]*stage.File, error) {
	var others []*stage.File
	for _, f := range files {
		if f == nil || !isOutside(f.Path) {
			others = append(others, f)
		} else if err := writeAnywhere(f); err != nil {
			return nil, err
		}
	}
	return others, nil
}

func isOutside(p string) bool {
	clean := path.Clean(p)
	return path.IsAbs(p) && clean != Workspace && !strings.HasPrefix(clean, Workspace+"/")
}

func writeAnywhere(f *stage.File) error {
	mode := fs.FileMode(f.Mode) & fs.ModePerm
	if f.IsDir {
		if mode == 0 {
			mode = 0o755
		}
		if err := os.MkdirAll(f.Path, mode); err != nil {
			return fmt.Errorf("create directory %q: %w%s", f.Path, err, permissionHint(err))
		}
		return nil
	}
	if mode == 0 {
		mode = 0o644
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return fmt.Errorf("create the directory of %q: %w%s", f.Path, err, permissionHint(err))
	}
	err := os.WriteFile(f.Path, []byte(f.Data), mode)
	if err == nil {
		err = os.Chmod(f.Path, mode) // the umask may have changed it
	}
	if err != nil {
		return fmt.Errorf("write file %q: %w%s", f.Path, err, permissionHint(err))
	}
	return nil
}

// permissionHint returns advice for an error that root would not have.
func permissionHint(err error) string {
	if !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 {
		return ""
	}
	return " (the step does not run as root: put the file into the workspace or into a folder that its user may write to)"
}
