package local

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
	"github.com/delegate-io/dlite/task/stage"
)

// stepMount is where a container sees the folder of its step.
const stepMount = "/dlite"

// artifactVariable holds the path of the artifact file (PROTOCOL 5).
const artifactVariable = "PLUGIN_ARTIFACT_FILE"

// bind is a file or folder of this machine in a container.
type bind struct {
	source, target string
	readOnly       bool
}

// handover is the folder of one step: the files through which it hands
// variables on (PROTOCOL 5), and its scratch folder.
type handover struct {
	step  *stage.Step
	limit int64
	dirs  []string // to be removed with the step
	// Folders as they were before the step could put something else in their
	// place.
	out, workspace *os.Root

	output, secret, env, artifact, vars place
	scratch                             string // as the step sees it
	mounts                              []bind
	names                               []string // of shell variables to read
}

// place is a file below a folder that the step can write to, and its path as
// the step sees it.
type place struct {
	root           *os.Root
	dir, rel, view string
}

func (r *run) newHandover() (*handover, error) {
	h := &handover{step: &r.step.Step, limit: r.d.cfg.fileLimit}
	names, err := outputNames(h.step)
	if err != nil {
		return nil, err
	}
	h.names = names

	name := slug(r.step.ID) + "-" + randomHex(4)
	disk := filepath.Join(r.tx.Dir, "steps", name)
	memory := filepath.Join(r.tx.Memory, "steps", name)
	h.dirs = []string{disk}
	if memory != disk {
		h.dirs = append(h.dirs, memory)
	}
	out, scratch := filepath.Join(memory, "out"), filepath.Join(disk, "scratch")
	if err := r.fill(h, disk, out, scratch); err != nil {
		h.remove()
		return nil, err
	}
	return h, nil
}

func (r *run) fill(h *handover, disk, out, scratch string) error {
	for _, dir := range h.dirs {
		if err := makeDir(dir, 0o711); err != nil {
			return err
		}
	}
	// Open to all: the step may run as any user. The transaction's folder above
	// keeps everybody else away.
	for _, dir := range []string{out, scratch} {
		if err := makeDir(dir, 0o777); err != nil {
			return err
		}
	}
	var err error
	if h.out, err = os.OpenRoot(out); err != nil {
		return err
	}
	if h.workspace, err = os.OpenRoot(r.tx.workspace()); err != nil {
		return err
	}
	inside := func(name string) string {
		if r.step.Image == "" {
			return filepath.Join(out, name)
		}
		return path.Join(stepMount, "out", name)
	}
	for name, p := range map[string]*place{
		"output": &h.output, "secret": &h.secret, "env": &h.env, "artifact": &h.artifact, "vars": &h.vars,
	} {
		*p = place{root: h.out, dir: out, rel: name, view: inside(name)}
	}
	h.mounts = []bind{
		{source: out, target: path.Join(stepMount, "out")},
		{source: scratch, target: path.Join(stepMount, "scratch")},
	}
	h.scratch = scratch
	if r.step.Image != "" {
		h.scratch = path.Join(stepMount, "scratch")
	}
	if err := r.fillWished(h, scratch); err != nil {
		return err
	}
	for _, p := range []place{h.output, h.secret, h.env} {
		if err := writeFile(p.dir, p.rel, &stage.File{Path: p.rel, Mode: 0o666}); err != nil {
			return err
		}
	}
	return r.writeFiles(h, disk)
}

// fillWished puts the files where the step's fields want them.
func (r *run) fillWished(h *handover, scratch string) error {
	for wish, p := range map[string]*place{h.step.OutputVarFile: &h.output, h.step.SecretVarFile: &h.secret} {
		if wish == "" {
			continue
		}
		if rel, ok := r.tx.inWorkspace(wish); ok {
			*p = place{root: h.workspace, dir: r.tx.workspace(), rel: rel, view: r.viewOf(rel)}
			continue
		}
		if r.step.Image == "" || !path.IsAbs(wish) {
			return fmt.Errorf("output file %q is not in the workspace", wish)
		}
		h.mounts = append(h.mounts, bind{source: filepath.Join(p.dir, p.rel), target: wish})
		p.view = wish
	}
	wish := h.step.ScratchDir
	if wish == "" {
		return nil
	}
	if rel, ok := r.tx.inWorkspace(wish); ok {
		h.scratch = r.viewOf(rel)
		return writeFile(r.tx.workspace(), rel, &stage.File{Path: wish, IsDir: true, Mode: 0o777})
	}
	if r.step.Image == "" || !path.IsAbs(wish) {
		return fmt.Errorf("scratch folder %q is not in the workspace", wish)
	}
	h.mounts = append(h.mounts, bind{source: scratch, target: wish})
	h.scratch = wish
	return nil
}

// writeFiles makes the step's files: in the workspace, or, for a container, at
// whatever absolute path they want.
func (r *run) writeFiles(h *handover, disk string) error {
	for i, f := range r.step.Files {
		if f == nil {
			continue
		}
		if rel, ok := r.tx.inWorkspace(f.Path); ok {
			if err := writeFile(r.tx.workspace(), rel, f); err != nil {
				return err
			}
			continue
		}
		if r.step.Image == "" || !path.IsAbs(f.Path) {
			return fmt.Errorf("file %q is not in the workspace", f.Path)
		}
		rel := fmt.Sprintf("file-%d", i)
		if err := writeFile(disk, rel, f); err != nil {
			return err
		}
		h.mounts = append(h.mounts, bind{source: filepath.Join(disk, rel), target: f.Path})
	}
	return nil
}

// viewOf is the path of something in the workspace as the step sees it.
func (r *run) viewOf(rel string) string {
	if r.step.Image == "" {
		return filepath.Join(r.tx.workspace(), rel)
	}
	return path.Join(WorkspaceMount, filepath.ToSlash(rel))
}

// environ merges the variables of a step: base, the transaction's, the step's,
// ours; later ones win.
func (r *run) environ(base map[string]string) (map[string]string, error) {
	env := maps.Clone(base)
	if env == nil {
		env = map[string]string{}
	}
	services, err := r.serviceVariables()
	if err != nil {
		return nil, err
	}
	maps.Copy(env, services)
	maps.Copy(env, r.env.Envs)
	maps.Copy(env, r.step.Environment)
	maps.Copy(env, map[string]string{
		"DRONE_OUTPUT":               r.files.output.view,
		"HARNESS_OUTPUT_FILE":        r.files.output.view,
		"HARNESS_OUTPUT_SECRET_FILE": r.files.secret.view,
		"DRONE_ENV":                  r.files.env.view,
		artifactVariable:             r.files.artifact.view,
		"HARNESS_SCRATCH_DIR":        r.files.scratch,
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
func (r *run) argv() []string {
	argv := append(append([]string{}, r.step.Run.Entrypoint...), r.step.Run.Command...)
	if len(r.files.names) == 0 {
		return argv
	}
	argv, ok := readOut(argv, r.files.names, r.files.vars.view)
	if !ok {
		r.out.printf("Outputs are read from the file in DRONE_OUTPUT alone: the step is not a shell with -c.")
	}
	return argv
}

// collect fills in what the step handed on. What cannot be read is said in out.
func (h *handover) collect(res *driver.Result, out *output) {
	read := func(p place, what string) string {
		b, err := readFile(p.root, p.rel, h.limit)
		if errors.Is(err, fs.ErrNotExist) {
			return "" // the step had nothing to say
		}
		if err != nil {
			out.printf("The step's %s could not be read: %v", what, err)
		}
		return string(b)
	}
	parse := func(p place, what string) map[string]string {
		vars, err := parseDotenv(read(p, what))
		if err != nil {
			out.printf("The step's %s is malformed: %v", what, strings.ReplaceAll(err.Error(), "\n", "; "))
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
func (h *handover) close() {
	for _, root := range []*os.Root{h.out, h.workspace} {
		if root != nil {
			_ = root.Close()
		}
	}
}

func (h *handover) remove() {
	h.close()
	for _, dir := range h.dirs {
		_ = removeTree(dir) // what is left goes with the transaction
	}
}

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
