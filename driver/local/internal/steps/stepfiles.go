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
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// stepMount is where a container sees the folder of its step.
const stepMount = "/dlite"

// ArtifactVariable holds the path of the artifact file (PROTOCOL 5).
const ArtifactVariable = "PLUGIN_ARTIFACT_FILE"

// bind is a file or folder of this machine in a container.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

// handover is the folder of one step: the files through which it hands
// variables on (PROTOCOL 5), and its scratch folder.
type Files struct {
	Name  string
	step  *stage.Step
	limit int64
	dirs  []string // to be removed with the step
	lent  scratch  // of a step on the host; to be given back
	pool  *ScratchPool
	// Folders as they were before the step could put something else in their
	// place.
	out, workspace *os.Root

	output, secret, env, artifact, vars place
	scratch                             string // as the step sees it
	Mounts                              []Bind
	names                               []string // of shell variables to read
}

// place is a file below a folder that the step can write to, and its path as
// the step sees it.
type place struct {
	root           *os.Root
	dir, rel, view string
}

// newFiles creates the directory of the step and its files.
func (r *Run) newFiles() (*Files, error) {
	return r.openFiles(Slug(r.Step.ID)+"-"+recorded.RandomHex(4), true)
}

// OpenFiles opens the files that an earlier process created for the step under a name ([Files.Name]).
func (r *Run) OpenFiles(name string) (err error) {
	r.Files, err = r.openFiles(name, false)
	return err
}

// openFiles opens the directory of that name. If fresh is set it creates the directory and the files.
func (r *Run) openFiles(name string, fresh bool) (*Files, error) {
	h := &Files{Name: name, step: &r.Step.Step, limit: r.Driver.Config.FileLimit, pool: &r.Driver.Scratch}
	names, err := outputNames(h.step)
	if err != nil {
		return nil, err
	}
	h.names = names

	disk := filepath.Join(r.Tx.Dir, "steps", name)
	memory := filepath.Join(r.Tx.Memory, "steps", name)
	out, scratch := filepath.Join(memory, "out"), filepath.Join(disk, "scratch")
	h.dirs = []string{memory}
	if r.Step.Image != "" && disk != memory {
		h.dirs = append(h.dirs, disk)
	}
	err = nil
	switch {
	case !fresh:
	case r.Step.Image != "":
		err = h.makeDirs(out, scratch)
	default:
		if h.lent, err = h.pool.take(r.Tx.Dir); err == nil {
			scratch = h.lent.path
			err = h.makeDirs(out)
		}
	}
	if err == nil {
		err = r.place(h, out, scratch)
	}
	if err == nil && fresh {
		err = r.fill(h, disk)
	}
	if err != nil {
		h.Remove()
		return nil, err
	}
	return h, nil
}

// makeDirs makes the step's own folders and those in them that it may use.
func (h *Files) makeDirs(open ...string) error {
	for _, dir := range h.dirs {
		if err := MakeDir(dir, 0o711); err != nil {
			return err
		}
	}
	// Open to all: the step may run as any user. The transaction's folder above
	// keeps everybody else away.
	for _, dir := range open {
		if err := MakeDir(dir, 0o777); err != nil {
			return err
		}
	}
	return nil
}

// place says where everything is.
func (r *Run) place(h *Files, out, scratch string) error {
	var err error
	if h.out, err = os.OpenRoot(out); err != nil {
		return err
	}
	if h.workspace, err = os.OpenRoot(r.Tx.WorkspaceDir()); err != nil {
		return err
	}
	inside := func(name string) string {
		if r.Step.Image == "" {
			return filepath.Join(out, name)
		}
		return path.Join(stepMount, "out", name)
	}
	for name, p := range map[string]*place{
		"output": &h.output, "secret": &h.secret, "env": &h.env, "artifact": &h.artifact, "vars": &h.vars,
	} {
		*p = place{root: h.out, dir: out, rel: name, view: inside(name)}
	}
	h.Mounts = []Bind{
		{Source: out, Target: path.Join(stepMount, "out")},
		{Source: scratch, Target: path.Join(stepMount, "scratch")},
	}
	h.scratch = scratch
	if r.Step.Image != "" {
		h.scratch = path.Join(stepMount, "scratch")
	}
	return r.placeWished(h, scratch)
}

// fill makes the files.
func (r *Run) fill(h *Files, disk string) error {
	for _, p := range []place{h.output, h.secret, h.env} {
		var err error
		if p.root == h.out { // which is new, and nobody else's yet
			err = fillFile(p.root, p.rel, nil, 0o666)
		} else {
			err = WriteFile(p.dir, p.rel, &stage.File{Path: p.rel, Mode: 0o666})
		}
		if err != nil {
			return err
		}
	}
	return r.writeFiles(h, disk)
}

// placeWished puts the files where the step's fields want them.
func (r *Run) placeWished(h *Files, scratch string) error {
	for wish, p := range map[string]*place{h.step.OutputVarFile: &h.output, h.step.SecretVarFile: &h.secret} {
		if wish == "" {
			continue
		}
		if rel, ok := r.Tx.InWorkspace(wish); ok {
			*p = place{root: h.workspace, dir: r.Tx.WorkspaceDir(), rel: rel, view: r.viewOf(rel)}
			continue
		}
		if r.Step.Image == "" || !path.IsAbs(wish) {
			return fmt.Errorf("output file %q is not in the workspace", wish)
		}
		h.Mounts = append(h.Mounts, Bind{Source: filepath.Join(p.dir, p.rel), Target: wish})
		p.view = wish
	}
	wish := h.step.ScratchDir
	if wish == "" {
		return nil
	}
	if rel, ok := r.Tx.InWorkspace(wish); ok {
		h.scratch = r.viewOf(rel)
		return WriteFile(r.Tx.WorkspaceDir(), rel, &stage.File{Path: wish, IsDir: true, Mode: 0o777})
	}
	if r.Step.Image == "" || !path.IsAbs(wish) {
		return fmt.Errorf("scratch folder %q is not in the workspace", wish)
	}
	h.Mounts = append(h.Mounts, Bind{Source: scratch, Target: wish})
	h.scratch = wish
	return nil
}

// writeFiles makes the step's files: in the workspace, or, for a container, at
// whatever absolute path they want.
func (r *Run) writeFiles(h *Files, disk string) error {
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
		if r.Step.Image == "" || !path.IsAbs(f.Path) {
			return fmt.Errorf("file %q is not in the workspace", f.Path)
		}
		rel := fmt.Sprintf("file-%d", i)
		if err := WriteFile(disk, rel, f); err != nil {
			return err
		}
		h.Mounts = append(h.Mounts, Bind{Source: filepath.Join(disk, rel), Target: f.Path})
	}
	return nil
}

// viewOf is the path of something in the workspace as the step sees it.
func (r *Run) viewOf(rel string) string {
	if r.Step.Image == "" {
		return filepath.Join(r.Tx.WorkspaceDir(), rel)
	}
	return path.Join(WorkspaceMount, filepath.ToSlash(rel))
}

// environ merges the variables of a step: base, the transaction's, the step's,
// ours; later ones win.
func (r *Run) Environ(base map[string]string) (map[string]string, error) {
	env := maps.Clone(base)
	if env == nil {
		env = map[string]string{}
	}
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

// argv is the step's command line, which hands the wanted shell variables on
// where it is a shell's.
// What it may not show goes to env.
func (r *Run) Argv(env map[string]string) ([]string, error) {
	argv := append(append([]string{}, r.Step.Run.Entrypoint...), r.Step.Run.Command...)
	if len(r.Files.names) > 0 {
		var ok bool
		if argv, ok = readOut(argv, r.Files.names, r.Files.vars.view); !ok {
			r.Out.Printf("Outputs are read from the file in DRONE_OUTPUT alone: the step is not a shell with -c.")
		}
	}
	if !r.Step.Conceal {
		return argv, nil
	}
	argv, script, err := conceal(argv)
	env[scriptVariable] = script
	return argv, err
}

// collect fills in what the step handed on. What cannot be read is said in out,
// and lost.
func (h *Files) collect(res *driver.Result, out *Output) {
	read := func(p place, what string) string {
		b, err := readFile(p.root, p.rel, h.limit)
		if errors.Is(err, fs.ErrNotExist) {
			return "" // the step had nothing to say
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
	parse := func(p place, what string) map[string]string {
		vars, err := parseDotenv(read(p, what))
		if err != nil {
			out.Printf("The step's %s is malformed: %v", what, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return vars
	}
	res.Outputs = parse(h.output, "output file")
	res.Secrets = parse(h.secret, "secret output file")
	if h.secret.root == h.workspace {
		// Nobody but us is to find it there.
		_ = h.workspace.Remove(h.secret.rel)
	}
	res.Env = parse(h.env, "environment file")
	if artifact := read(h.artifact, "artifact file"); artifact != "" {
		res.Artifact = []byte(artifact)
	}
	vars := parseReadOut(read(h.vars, "list of variables"))
	for _, name := range h.step.OutputVars {
		if v, ok := vars[name]; ok {
			res.Outputs[name] = v
		}
	}
	for _, o := range h.step.Outputs {
		v, ok := vars[o.Value]
		if !ok {
			v, ok = res.Outputs[o.Key]
		}
		switch {
		case !ok:
		case o.Type == stage.OutputSecret:
			delete(res.Outputs, o.Key)
			res.Secrets[o.Key] = v
		default:
			res.Outputs[o.Key] = v
		}
	}
}

// close lets go of the folders. What the step hands on cannot be read any more.
func (h *Files) Close() {
	for _, root := range []*os.Root{h.out, h.workspace} {
		if root != nil {
			_ = root.Close()
		}
	}
}

func (h *Files) Remove() {
	h.Close()
	for _, dir := range h.dirs {
		_ = RemoveTree(dir) // what is left goes with the transaction
	}
	h.pool.giveBack(h.lent)
}

// Dir returns a directory of the step that other users cannot write to. It is removed with the step.
func (h *Files) Dir() string { return h.dirs[0] }

// outputNames lists the shell variables that the step wants read.
func outputNames(step *stage.Step) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	add := func(name string) error {
		if !isShellName(name) {
			return fmt.Errorf("output variable %q is not a variable's name", name)
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
		return nil
	}
	for _, name := range step.OutputVars {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, o := range step.Outputs {
		name := o.Value
		if name == "" {
			name = o.Key
		}
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}
