package steps

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/handover"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// stepMount is the path of the step's directory inside containers.
const stepMount = "/dlite"

// ArtifactVariable is the variable with the path of the artifact file (section 5 of docs/protocol.md).
const ArtifactVariable = "PLUGIN_ARTIFACT_FILE"

// Bind is a file or directory of this machine that is mounted into a container.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

// Files is the directory of one step: the files through which the step hands on variables (section 5
// of docs/protocol.md), and its scratch directory.
type Files struct {
	Name       string
	step       *stage.Step
	limit      int64
	dirs       []string // removed with the step
	scratchDir scratch  // of a host step; returned to the pool
	pool       *ScratchPool
	// Opened before the step could replace them.
	out, workspace *os.Root
	elsewhere      []*os.Root // of the whole machine

	output, secret, env, artifact, vars place
	scratch                             string // as the step sees it
	Mounts                              []Bind
	names                               []string // of shell variables to read
}

// place is a file in a directory that the step can write to. view is its path as the step sees it.
type place struct {
	root           *os.Root
	dir, rel, view string
}

// newFiles creates the directory of the step and its files.
func (r *Run) newFiles() (*Files, error) {
	return r.openFiles(Slug(r.Step.ID)+"-"+recorded.RandomHex(4), true)
}

// OpenFiles opens the files that an earlier process created for the step under a name ([Files], Name).
func (r *Run) OpenFiles(name string) (err error) {
	r.Files, err = r.openFiles(name, false)
	return err
}

// openFiles opens the directory of that name. If fresh is set it creates the directory and the files.
func (r *Run) openFiles(name string, fresh bool) (*Files, error) {
	sf := &Files{Name: name, step: &r.Step.Step, limit: r.Driver.Config.FileLimit, pool: &r.Driver.Scratch}
	names, err := handover.Names(sf.step)
	if err != nil {
		return nil, err
	}
	sf.names = names

	disk := filepath.Join(r.Tx.Dir, "steps", name)
	memory := filepath.Join(r.Tx.Memory, "steps", name)
	out, scratch := filepath.Join(memory, "out"), filepath.Join(disk, "scratch")
	sf.dirs = []string{memory}
	if r.Step.Image != "" && disk != memory {
		sf.dirs = append(sf.dirs, disk)
	}
	err = nil
	switch {
	case !fresh:
	case r.Step.Image != "":
		err = sf.makeDirs(out, scratch)
	default:
		if sf.scratchDir, err = sf.pool.take(r.Tx.Dir); err == nil {
			scratch = sf.scratchDir.path
			err = sf.makeDirs(out)
		}
	}
	if err == nil {
		err = r.locate(sf, out, scratch)
	}
	if err == nil && fresh {
		err = r.createFiles(sf, disk, memory)
	}
	if err != nil {
		sf.Remove()
		return nil, err
	}
	return sf, nil
}

// makeDirs creates the step's own directories, and in them the directories open, which any user can
// write to.
func (sf *Files) makeDirs(open ...string) error {
	for _, dir := range sf.dirs {
		if err := MakeDir(dir, 0o711); err != nil {
			return err
		}
	}
	// The step may run as any user. Other users cannot enter the directory of the transaction.
	for _, dir := range open {
		if err := MakeDir(dir, 0o777); err != nil {
			return err
		}
	}
	return nil
}

// locate opens the directories and sets the paths of all files.
func (r *Run) locate(sf *Files, out, scratch string) error {
	var err error
	if sf.out, err = os.OpenRoot(out); err != nil {
		return err
	}
	if sf.workspace, err = os.OpenRoot(r.Tx.WorkspaceDir()); err != nil {
		return err
	}
	inside := func(name string) string {
		if r.Step.Image == "" {
			return filepath.Join(out, name)
		}
		return path.Join(stepMount, "out", name)
	}
	for name, p := range map[string]*place{
		"output": &sf.output, "secret": &sf.secret, "env": &sf.env, "artifact": &sf.artifact, "vars": &sf.vars,
	} {
		*p = place{root: sf.out, dir: out, rel: name, view: inside(name)}
	}
	sf.Mounts = []Bind{
		{Source: out, Target: path.Join(stepMount, "out")},
		{Source: scratch, Target: path.Join(stepMount, "scratch")},
	}
	sf.scratch = scratch
	if r.Step.Image != "" {
		sf.scratch = path.Join(stepMount, "scratch")
	}
	return r.locateRequested(sf, scratch)
}

// createFiles creates the files.
func (r *Run) createFiles(sf *Files, disk, memory string) error {
	for _, p := range []place{sf.output, sf.secret, sf.env} {
		var err error
		if p.root == sf.out { // sf.out is new: only this process has used it
			err = fillFile(p.root, p.rel, nil, 0o666)
		} else {
			err = WriteFile(p.dir, p.rel, &stage.File{Path: p.rel, Mode: 0o666})
		}
		if err != nil {
			return err
		}
	}
	return r.writeStepFiles(sf, disk, memory)
}

// locateRequested moves files to the places that the step asks for.
func (r *Run) locateRequested(sf *Files, scratch string) error {
	for requested, p := range map[string]*place{sf.step.OutputVarFile: &sf.output, sf.step.SecretVarFile: &sf.secret} {
		if requested == "" {
			continue
		}
		if rel, ok := r.Tx.InWorkspace(requested); ok {
			*p = place{root: sf.workspace, dir: r.Tx.WorkspaceDir(), rel: rel, view: r.viewOf(rel)}
			continue
		}
		if dir, rel, ok := r.Tx.locate(requested); ok && r.Step.Image == "" {
			root, err := openDirectory(dir)
			if err != nil {
				return fmt.Errorf("output file %q: %w", requested, err)
			}
			sf.elsewhere = append(sf.elsewhere, root)
			*p = place{root: root, dir: dir, rel: rel, view: filepath.Join(dir, rel)}
			continue
		}
		if r.Step.Image == "" || !path.IsAbs(requested) {
			return fmt.Errorf("output file %q is not in the workspace", requested)
		}
		sf.Mounts = append(sf.Mounts, Bind{Source: filepath.Join(p.dir, p.rel), Target: requested})
		p.view = requested
	}
	requested := sf.step.ScratchDir
	if requested == "" {
		return nil
	}
	if rel, ok := r.Tx.InWorkspace(requested); ok {
		sf.scratch = r.viewOf(rel)
		return WriteFile(r.Tx.WorkspaceDir(), rel, &stage.File{Path: requested, IsDir: true, Mode: 0o777})
	}
	if dir, rel, ok := r.Tx.locate(requested); ok && r.Step.Image == "" {
		sf.scratch = filepath.Join(dir, rel)
		return r.Tx.writeAt(dir, rel, &stage.File{Path: requested, IsDir: true, Mode: 0o777})
	}
	if r.Step.Image == "" || !path.IsAbs(requested) {
		return fmt.Errorf("scratch directory %q is not in the workspace", requested)
	}
	sf.Mounts = append(sf.Mounts, Bind{Source: scratch, Target: requested})
	sf.scratch = requested
	return nil
}

// openDirectory opens a directory. It creates a missing one.
func openDirectory(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

// writeStepFiles creates the files of the step: in the workspace, where the machine belongs to the
// transaction or for a container also at any absolute path. A file with a secret that is mounted
// into a container lies in memory (rule S5). Others do not: memory may forbid to execute them.
func (r *Run) writeStepFiles(sf *Files, disk, memory string) error {
	for i, f := range r.Step.Files {
		if f == nil {
			continue
		}
		if rel, ok := r.Tx.InWorkspace(f.Path); ok {
			if err := WriteFile(r.Tx.WorkspaceDir(), rel, f); err != nil {
				return err
			}
			continue
		}
		if dir, rel, ok := r.Tx.locate(f.Path); ok && r.Step.Image == "" {
			if err := r.Tx.writeAt(dir, rel, f); err != nil {
				return err
			}
			continue
		}
		if r.Step.Image == "" || !path.IsAbs(f.Path) {
			return fmt.Errorf("file %q is not in the workspace", f.Path)
		}
		dir, rel := disk, fmt.Sprintf("file-%d", i)
		if r.maskText(f.Data) != f.Data {
			dir = memory
		}
		if err := WriteFile(dir, rel, f); err != nil {
			return err
		}
		sf.Mounts = append(sf.Mounts, Bind{Source: filepath.Join(dir, rel), Target: f.Path})
	}
	return nil
}

// viewOf returns the path of a file in the workspace as the step sees it.
func (r *Run) viewOf(rel string) string {
	if r.Step.Image == "" {
		return filepath.Join(r.Tx.WorkspaceDir(), rel)
	}
	return path.Join(WorkspaceMount, filepath.ToSlash(rel))
}

// Environ merges the variables of a step: base, the services, the transaction, the step, the driver.
// Later ones win.
func (r *Run) Environ(base map[string]string) (map[string]string, error) {
	env := maps.Clone(base)
	if env == nil {
		env = map[string]string{}
	}
	// Plugins and scripts know the workspace by these names. The stage may set others.
	env["HARNESS_WORKSPACE"], env["DRONE_WORKSPACE"] = r.viewOf("."), r.viewOf(".")
	services, err := r.serviceVariables()
	if err != nil {
		return nil, err
	}
	maps.Copy(env, services)
	maps.Copy(env, r.Env.Envs)
	maps.Copy(env, r.Step.Environment)
	maps.Copy(env, map[string]string{
		"DRONE_OUTPUT":               r.Files.output.view,
		"HARNESS_OUTPUT_FILE":        r.Files.output.view,
		"HARNESS_OUTPUT_SECRET_FILE": r.Files.secret.view,
		"DRONE_ENV":                  r.Files.env.view,
		ArtifactVariable:             r.Files.artifact.view,
		"HARNESS_SCRATCH_DIR":        r.Files.scratch,
		"DLITE_WORKSPACE":            r.viewOf("."),
	})
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return nil, fmt.Errorf("variable name %q is not valid", k)
		}
		if strings.IndexByte(v, 0) >= 0 {
			return nil, fmt.Errorf("variable %s holds a zero byte", k)
		}
	}
	return env, nil
}

// Argv returns the command line of the step. The script of a shell also hands on the requested shell
// variables. A script that holds a secret goes to env instead (rule S5).
func (r *Run) Argv(env map[string]string) ([]string, error) {
	argv := append(append([]string{}, r.Step.Run.Entrypoint...), r.Step.Run.Command...)
	if len(r.Files.names) > 0 {
		var ok bool
		if argv, ok = handover.AppendReadout(argv, r.Files.names, r.Files.vars.view); !ok {
			r.Out.Printf("The driver reads outputs only from the file in DRONE_OUTPUT: the step is not the script of a shell or Python with -c, or of PowerShell with -Command.")
		}
	}
	if !r.Step.SecretCommand {
		return argv, nil
	}
	argv, script, err := handover.HideScript(argv)
	env[handover.ScriptVariable] = script
	return argv, err
}

// collect adds the values that the step handed on to res. For a file that it cannot read it prints a
// line to out and sets Lost.
func (sf *Files) collect(res *driver.Result, out *Output) {
	read := func(p place, what string) string {
		b, err := readFile(p.root, p.rel, sf.limit)
		if errors.Is(err, fs.ErrNotExist) {
			return "" // the step handed on nothing
		}
		if err != nil {
			lost := fmt.Sprintf("the step's %s could not be read: %v", what, err)
			out.Printf("%s", strings.ToUpper(lost[:1])+lost[1:])
			if res.Lost != "" {
				res.Lost += "; "
			}
			res.Lost += lost
		}
		return string(b)
	}
	files := map[handover.File]place{
		handover.Output: sf.output, handover.Secret: sf.secret, handover.Env: sf.env,
		handover.Artifact: sf.artifact, handover.Vars: sf.vars,
	}
	handover.Collect(sf.step, res, func(f handover.File) string { return read(files[f], f.String()) },
		func(text string) { out.Printf("%s", text) })
	if sf.secret.root != sf.out {
		// The next step must not find the secrets.
		_ = sf.secret.root.Remove(sf.secret.rel)
	}
}

// Close closes the directories. After that the values that the step hands on cannot be read.
func (sf *Files) Close() {
	for _, root := range append([]*os.Root{sf.out, sf.workspace}, sf.elsewhere...) {
		if root != nil {
			_ = root.Close()
		}
	}
}

// Remove closes the files and removes their folders.
func (sf *Files) Remove() {
	sf.Close()
	for _, dir := range sf.dirs {
		_ = RemoveTree(dir) // a remaining file is removed with the transaction
	}
	sf.pool.put(sf.scratchDir)
}

// Dir returns a directory of the step that other users cannot write to. It is removed with the step.
func (sf *Files) Dir() string { return sf.dirs[0] }
