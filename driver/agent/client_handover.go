package agent

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/internal/handover"
	"github.com/delegate-io/dlite/task/stage"
)

// foreignFiles are the output files of a step at a foreign agent. They are in the workspace, and the
// client reads and removes them with an additional step.
type foreignFiles struct {
	asked stage.Step // the outputs that the step declares
	paths map[handover.File]string
}

// handOverFiles makes the step write the values that it hands on into files. It returns nil for a step
// that the agent reports to the manager, for a detached step and for a Windows shell.
func handOverFiles(r *StartStepRequest) *foreignFiles {
	if r.StepStatus != nil || r.Detach || isWindowsShell(&r.Run) {
		return nil
	}
	f := &foreignFiles{asked: r.Step, paths: map[handover.File]string{}}
	for _, file := range []handover.File{handover.Output, handover.Secret, handover.Env, handover.Artifact, handover.Vars} {
		f.paths[file] = path.Join(envelope.Workspace, ".dlite-"+r.ID+"-"+string(file))
	}
	if r.OutputVarFile != "" {
		f.paths[handover.Output] = envelope.InWorkspace(r.OutputVarFile)
	}
	if r.SecretVarFile != "" {
		f.paths[handover.Secret] = envelope.InWorkspace(r.SecretVarFile)
	}
	for file, p := range f.paths {
		for _, name := range file.Variables() {
			r.Environment[name] = p
		}
	}
	argv := append(append([]string{}, r.Run.Entrypoint...), r.Run.Command...)
	if names, err := handover.Names(&r.Step); err == nil && len(names) > 0 {
		argv, _ = handover.AppendReadout(argv, names, f.paths[handover.Vars])
	}
	if r.Conceal {
		if hidden, script, err := handover.HideScript(argv); err == nil {
			argv, r.Environment[handover.ScriptVariable] = hidden, script
		}
	}
	if entry := len(r.Run.Entrypoint); entry > 0 {
		r.Run.Entrypoint, r.Run.Command = argv[:entry], argv[entry:]
	}
	r.OutputVars, r.Outputs, r.OutputVarFile, r.SecretVarFile = nil, nil, "", ""
	return f
}

// isWindowsShell reports whether a step runs in a shell of Windows, whose machine has no POSIX tools.
func isWindowsShell(run *stage.Run) bool {
	if len(run.Entrypoint) == 0 {
		return false
	}
	name := strings.ToLower(path.Base(strings.ReplaceAll(run.Entrypoint[0], `\`, "/")))
	switch strings.TrimSuffix(name, ".exe") {
	case "powershell", "pwsh", "cmd":
		return true
	}
	return false
}

// maxHandOver limits each file, in bytes.
const maxHandOver = 1 << 20

// collectTimeout limits the step that reads the files.
const collectTimeout = 30 * time.Second

// collectScript prints each file as its name and its bytes in hexadecimal, and removes it.
const collectScript = `for f in output secret env artifact vars; do
eval "p=\$DLITE_FILE_$f"
if [ -f "$p" ]; then printf '%s ' "$f"; head -c "$DLITE_FILE_LIMIT" "$p" | od -An -v -tx1 | tr -d ' \n'; echo; rm -f "$p"; fi
done
echo end`

// collect adds the values that the step handed on to res.
func (s *session) collect(ctx context.Context, res *driver.Result) {
	if s.files == nil || res == nil || res.Detached {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	contents, err := s.readFiles(ctx)
	if err != nil {
		text := fmt.Sprintf("the values that the step handed on could not be read from the agent: %v", err)
		s.out.note("(" + text + ")")
		if asked := &s.files.asked; len(asked.OutputVars)+len(asked.Outputs) > 0 || asked.OutputVarFile != "" || asked.SecretVarFile != "" {
			res.Lost = text
		}
		return
	}
	handover.Collect(&s.files.asked, res, func(f handover.File) string {
		b := contents[f]
		if len(b) > maxHandOver {
			res.Lost = fmt.Sprintf("the step's %s is larger than %d bytes", f, maxHandOver)
			return ""
		}
		return string(b)
	}, s.out.note)
}

// readFiles runs the step that prints the files.
func (s *session) readFiles(ctx context.Context) (map[handover.File][]byte, error) {
	step := &foreignStep{StartStepRequest: StartStepRequest{Step: stage.Step{
		ID: s.key + "-files", Name: "files", Kind: "Run", LogDrone: true, WorkingDir: envelope.Workspace,
		Timeout:     int(collectTimeout / time.Second),
		Run:         stage.Run{Entrypoint: []string{"sh", "-c"}, Command: []string{collectScript}},
		Environment: map[string]string{"DLITE_FILE_LIMIT": fmt.Sprint(maxHandOver + 1)},
	}}}
	for f, p := range s.files.paths {
		step.Environment["DLITE_FILE_"+string(f)] = p
	}
	var out bytes.Buffer
	const longest = 16 * maxHandOver // five files, two digits for each byte
	reader := newForeignSession(s.c, step, &limited{w: &out, left: longest}, nil)
	res, f, err := reader.follow(ctx, true)
	f.Stop()
	switch {
	case err != nil:
		return nil, err
	case res.ExitCode != 0:
		return nil, fmt.Errorf("exit code %d", res.ExitCode)
	}
	return parseFiles(out.String())
}

// parseFiles reads the output of collectScript.
func parseFiles(text string) (map[handover.File][]byte, error) {
	files := map[handover.File][]byte{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "end" {
			return files, nil
		}
		name, digits, found := strings.Cut(line, " ")
		if !found {
			continue
		}
		b, err := hex.DecodeString(digits)
		if err != nil {
			return nil, errors.New("a file is not complete") // err would quote it
		}
		files[handover.File(name)] = b
	}
	return nil, errors.New("the list of files is not complete")
}

// limited fails after a number of bytes.
type limited struct {
	w    io.Writer
	left int
}

// Write implements [io.Writer].
func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("the output is too long")
	}
	l.left -= len(p)
	return l.w.Write(p)
}
