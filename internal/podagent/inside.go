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

// Inside is d, which runs steps as processes of this machine, for a container that
// has one step: the step gets the variables of the container's image, its files may
// be anywhere, running out of memory is told, and nothing that the step has started
// outlives it. environ are the variables of this process.
func Inside(d driver.Driver, environ []string) driver.Driver {
	return &inside{Driver: d, image: imageVariables(environ)}
}

type inside struct {
	driver.Driver
	image map[string]string
}

// imageVariables are those that are not ours.
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
		delete(within.Envs, "HOME") // the runtime's, for who the agent is
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
			res.ExitCode = 137 // the step did not care, but who wanted its work does
		}
	}
	return res, err
}

// trustWorkspace has git work in the workspace for who does not own it: the folder is
// root's, whatever the step and the clone run as. Who configures git by variables does
// without.
func trustWorkspace(vars map[string]string, step *driver.Step) {
	const count = "GIT_CONFIG_COUNT"
	if os.Geteuid() == 0 && step.User == "" || vars[count] != "" || step.Environment[count] != "" {
		return
	}
	vars[count] = "1"
	vars["GIT_CONFIG_KEY_0"], vars["GIT_CONFIG_VALUE_0"] = "safe.directory", Workspace
}

// ownHome is the home that a container's runtime gives to this process, if the image
// names none.
func ownHome() string {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "/"
	}
	return u.HomeDir
}

// writeOutside makes the files that are to be out of the workspace, where the
// container's own file system is the step's, and gives the others.
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
			return fmt.Errorf("make folder %q: %w%s", f.Path, err, rootAlone(err))
		}
		return nil
	}
	if mode == 0 {
		mode = 0o644
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return fmt.Errorf("make folder of %q: %w%s", f.Path, err, rootAlone(err))
	}
	err := os.WriteFile(f.Path, []byte(f.Data), mode)
	if err == nil {
		err = os.Chmod(f.Path, mode) // the umask had its say
	}
	if err != nil {
		return fmt.Errorf("write file %q: %w%s", f.Path, err, rootAlone(err))
	}
	return nil
}

// rootAlone says what to do about an error that root would not have.
func rootAlone(err error) string {
	if !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 {
		return ""
	}
	return " (the step does not run as root: put the file into the workspace or into a folder that its user may write to)"
}
