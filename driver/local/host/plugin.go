package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/artifact"
	"github.com/delegate-io/dlite/task/stage"
)

// checkPlugin rejects a plugin that cannot run.
func checkPlugin(step *stage.Step) error {
	p := step.Plugin
	if p == nil {
		return nil
	}
	switch {
	case step.Image != "":
		return errors.New("a plugin runs on the host, and the step has an image")
	case len(step.Run.Entrypoint)+len(step.Run.Command) > 0:
		return errors.New("the step has a plugin and a run: remove one of them")
	}
	if p.Builtin != "" {
		if len(p.Executables) > 0 {
			return errors.New("plugin: it has builtin and executables: remove one of them")
		}
		_, err := pluginVariables(p.Settings)
		return err
	}
	exe, err := artifact.Choose(p.Executables, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return fmt.Errorf("plugin: %w", err)
	}
	if exe.SHA256 == "" {
		return errors.New("plugin: sha256 must be 64 hexadecimal digits")
	}
	_, err = pluginVariables(p.Settings)
	return err
}

// pluginVariables converts settings to variables. It rejects two settings with the same variable, and
// a setting with a variable of the driver.
func pluginVariables(settings map[string]string) (map[string]string, error) {
	env := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		variable := "PLUGIN_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
		if _, ok := env[variable]; ok || variable == steps.ArtifactVariable {
			return nil, fmt.Errorf("plugin: setting %q has the variable %s, which another setting or the driver has too", name, variable)
		}
		env[variable] = settings[name]
	}
	return env, nil
}

// runPlugin runs the program of a plugin like any host step.
func (r *run) runPlugin(ctx context.Context) (*driver.Result, error) {
	p := r.Step.Plugin
	settings, err := pluginVariables(p.Settings)
	if err != nil {
		return nil, err
	}
	find := r.fetchPlugin
	if p.Builtin != "" {
		find = r.builtin
	}
	entrypoint, err := find(ctx)
	if err != nil {
		return nil, fmt.Errorf("plugin: %w", err)
	}
	step := *r.Step
	step.Run = stage.Run{Entrypoint: entrypoint, Command: p.Args}
	if step.Environment = maps.Clone(r.Step.Environment); step.Environment == nil {
		step.Environment = map[string]string{}
	}
	maps.Copy(step.Environment, settings)
	r.Step = &step
	return r.runProcess(ctx)
}

// fetchPlugin downloads the program of a plugin.
func (r *run) fetchPlugin(ctx context.Context) ([]string, error) {
	exe, err := artifact.Choose(r.Step.Plugin.Executables, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	dir, err := r.Driver.PluginDir()
	if err != nil {
		return nil, err
	}
	file, err := artifact.New(dir, "plugin").With(r.Driver.Config.HTTPClient).Fetch(ctx, exe, "", r.Out.Printf)
	if err != nil {
		return nil, err
	}
	if r.Step.User != "" || r.Tx.Supervisor != nil {
		// Only the delegate's user can read the cache, and separated steps do not see it.
		own := filepath.Join(r.Files.Dir(), filepath.Base(file))
		if err := copyFile(own, file); err != nil {
			return nil, err
		}
		file = own
	}
	return []string{file}, nil
}

// builtin returns the command of a program that this program contains.
func (r *run) builtin(context.Context) ([]string, error) {
	name := r.Step.Plugin.Builtin
	args, ok := r.Driver.Config.Builtins[name]
	if !ok {
		return nil, fmt.Errorf("this delegate or agent has no program %q: update it, or use a step with an image", name)
	}
	file := "/proc/self/exe" // also for users that cannot reach the file by its path
	if runtime.GOOS != "linux" {
		var err error
		if file, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return append([]string{file}, args...), nil
}

// mounts returns the directories of this machine for the paths that containers of the transaction have,
// for a program that this program contains.
func (r *run) mounts() (string, error) {
	all := map[string]string{steps.WorkspaceMount: r.Tx.WorkspaceDir()}
	for _, m := range r.Step.Volumes {
		v, err := r.Mounted(m)
		if err != nil {
			return "", err
		}
		all[m.Path] = v.Path
	}
	b, err := json.Marshal(all)
	return string(b), err
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		_ = os.Remove(to)
	}
	return err
}
