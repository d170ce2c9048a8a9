package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/creack/pty"
	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/examples/internal/machine"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/poller"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task/connector"
)

// asProgram makes the test's binary the program.
const asProgram = "DLITE_TEST_DLITE"

func TestMain(m *testing.M) {
	host.Supervise()
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// site is a manager with a delegate, and a folder with the settings of a user.
type site struct {
	*machine.Machine

	dir, token string
}

func newSite(t *testing.T) *site {
	t.Helper()
	m, err := machine.Start(t.Context(), machine.Config{Dir: t.TempDir(), Stages: 4})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, m.Close(ctx))
	})
	s := &site{Machine: m, dir: t.TempDir()}
	s.token, err = m.Token(time.Hour)
	require.NoError(t, err)
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	return s
}

// startTester starts a delegate that tests connectors, and writes the file of a connector to the site's folder.
func (s *site) startTester(t *testing.T) {
	t.Helper()
	text := "kind: http\naddress: " + s.URL + "/api/openapi.json\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "connector.yaml"), []byte(text), 0o600))
	c, err := client.New(s.URL, machine.Account, "", client.WithToken(s.token))
	require.NoError(t, err)
	p := poller.New(c, router.New(connector.Routes(nil)), poller.WithName("build-7"), poller.WithTags("linux"))
	over := make(chan error, 1)
	go func() { over <- p.Run(context.WithoutCancel(t.Context()), 1) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, p.Shutdown(ctx))
		assert.NoError(t, <-over)
		c.CloseIdleConnections()
	})
	require.Eventually(t, func() bool {
		_, out, _ := s.run(t, "delegates")
		return strings.Contains(out, "build-7")
	}, time.Minute, 50*time.Millisecond)
}

func pipelineOf(commands ...string) string {
	text := `pipeline:
  identifier: hello
  name: Hello
  variables:
    - {name: who, type: String, value: <+input>.default(world)}
  stages:
    - stage:
        identifier: build
        name: Build
        type: CI
        spec:
          runtime: {type: Docker, spec: {}}
          execution:
            steps:
`
	for i, command := range commands {
		id := []string{"greet", "then", "last"}[i]
		text += "              - step: {identifier: " + id + ", name: " + id + ", type: Run, spec: {command: " + command + "}}\n"
	}
	return text
}

var files = map[string]string{
	"pipeline.yaml": pipelineOf("echo hello <+pipeline.variables.who>"),
	"failing.yaml":  pipelineOf("echo before", "exit 3"),
	"long.yaml":     pipelineOf("sleep 300"),
	"cells.yaml":    strings.Replace(pipelineOf("echo ready"), "type: CI\n", "type: CI\n        strategy: {matrix: {go: [\"1.25\", \"1.26\"]}}\n", 1),
	"asking.yaml": strings.Replace(pipelineOf("exit 1"), "spec: {command: exit 1}",
		"spec: {command: exit 1}, failureStrategies: [{onFailure: {errors: [AllErrors], action: {type: ManualIntervention, spec: {timeout: 1h, onTimeout: {action: {type: Abort}}}}}}]", 1),
	"assumed.yaml": strings.Replace(pipelineOf("echo", "echo <+execution.steps.greet.output.outputVariables.X>"), "{command: echo}",
		"{command: echo, outputVariables: [{name: X, type: String, value: X}]}", 1),
	"stage.yaml":    "steps:\n  - {id: a, data: {run: {entrypoint: [sh, -ec], commands: [echo built]}}}\n",
	"daemon.yaml":   "type: watcher\nselectors: [nowhere]\nconfig: {image: watcher}\n",
	"task.yaml":     "type: source/git\nselectors: [nowhere]\ninterval_ms: 60000\nconfig: {url: https://git.example/app.git, branches: [main]}\n",
	"data.yaml":     "path: acme/app\n",
	"schedule.yaml": "cron: '30 3 * * *'\nstage:\n  steps:\n    - {id: a, data: {run: {entrypoint: [sh, -ec], commands: ['true']}}}\n",
}

func (s *site) environment(more ...string) []string {
	env := []string{asProgram + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "DLITE_CONFIG=" + filepath.Join(s.dir, "config.yaml"), "TERM=xterm"}
	return append(env, more...)
}

// run runs the program with the token of the site.
func (s *site) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return s.exec(t, s.environment("DLITE_URL="+s.URL, "DLITE_ACCOUNT="+machine.Account, "DLITE_TOKEN="+s.token), "", args...)
}

func (s *site) exec(t *testing.T, env []string, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, s.dir, strings.NewReader(input), &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Every command has examples in its help, and each of them works.
func TestTheExamplesOfTheHelpWork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	calls, err := api.New(api.Config{URL: s.URL, Account: machine.Account, Token: s.token})
	require.NoError(t, err)
	_, err = calls.StartRun(t.Context(), api.RunRequest{ID: "deploy", YAML: files["asking.yaml"]})
	require.NoError(t, err)
	_, err = calls.StartRun(t.Context(), api.RunRequest{ID: "again", YAML: files["long.yaml"]})
	require.NoError(t, err)
	for change, err := range calls.RunChanges(t.Context(), "deploy", 0) {
		require.NoError(t, err)
		if n := change.Nodes; len(n) > 0 && strings.Contains(statuses(n), "INTERVENTION_WAITING") {
			break
		}
	}
	s.startTester(t)
	bin := t.TempDir()
	for name, script := range map[string]string{
		"dlite": "exec '" + os.Args[0] + "' \"$@\"", "manager": "echo '" + s.token + "'",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700)) //nolint:gosec // a program
	}
	parser, err := kong.New(&cli{})
	require.NoError(t, err)
	tried := 0
	_ = kong.Visit(parser.Model.Node, func(v kong.Visitable, next kong.Next) error {
		n, ok := v.(*kong.Node)
		if !ok || len(n.Children) > 0 || n.Type != kong.CommandNode {
			return next(nil)
		}
		_, examples, found := strings.Cut(n.Detail, "Examples:\n")
		assert.True(t, found, "the help of %s has no examples", n.FullPath())
		for line := range strings.Lines(examples) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			require.True(t, ok, "%s: %s", n.FullPath(), line)
			command = strings.NewReplacer("http://127.0.0.1:3460", s.URL, "--account demo", "--account "+machine.Account).Replace(command)
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Env, cmd.Dir = append(s.environment(), "PATH="+bin+":"+os.Getenv("PATH")), s.dir
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s\n%s", command, out)
			tried++
		}
		return next(nil)
	})
	assert.Greater(t, tried, 25)
	info, err := os.Stat(filepath.Join(s.dir, "config.yaml"))
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())

	require.NoError(t, os.Chmod(filepath.Join(s.dir, "config.yaml"), 0o644)) //nolint:gosec // what the program must refuse
	code, _, errs := s.exec(t, s.environment(), "", "ls")
	assert.Equal(t, exitToken, code)
	assert.Contains(t, errs, "run chmod 600")
}

func statuses(nodes []api.Node) string {
	var all []string
	for i := range nodes {
		all = append(all, nodes[i].Status)
	}
	return strings.Join(all, " ")
}

func TestTheExitCodeTellsTheResult(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		code int
		args string
		want string // in the output
	}{
		{exitOK, "run pipeline.yaml --id good --wait", "build/greet | hello world"},
		{exitFailed, "run failing.yaml --id bad --wait", `"dlite show run/bad" explains it`},
		{exitFailed, "watch bad", "build/then: FAILED"},
		{exitFailed, "watch bad -o name", "run/bad"},
		{exitOK, "show bad", "build/then"},
		{exitOK, "logs bad --step greet", "before"},
		{exitOK, "run cells.yaml --id cells --wait", "build_1/greet | ready"},
		{exitOK, "show cells", "build_1 (go=1.26)"},
		{exitOK, "logs cells --step greet", "build_0/greet | ready\nbuild_1/greet | ready"},
		{exitOK, "logs cells --step build_1/greet", "ready\n"},
		{exitNotFound, "logs bad --step gret", "there are build/greet, build/then"},
		{exitOK, "run long.yaml --id slow", `"dlite watch run/slow"`},
		{exitRefused, "retry slow", "Its state does not permit this now"},
		{exitOK, "abort slow", "run/slow"},
		{exitAborted, "watch slow", "ABORTED"},
		{exitNotFound, "abort nothing", "neither a run nor a stage nothing"},
		{exitRefused, "approve bad", "no node of this run waits"},
		{exitNotFound, "show run/nothing", "dlite ls"},
		{exitNotFound, "drain nobody", "there are local"},
		{exitUsage, "ls --colour", "dlite --help"},
		{exitUsage, "run", "give either a file or --pipeline"},
		{exitUsage, "run nothing.yaml", "nothing.yaml"},
		{exitUsage, "run stage.yaml", "the pipeline has errors"},
		{exitUsage, "lint stage.yaml", "error"},
		{exitOK, "explain assumed.yaml", "assumed outputs, which --result sets: greet.X"},
		{exitOK, "explain assumed.yaml --result greet.X=1", "build"},
		{exitUsage, "submit pipeline.yaml", "docs/stages.md describes all"},
		{exitUsage, "connectors set web pipeline.yaml", "docs/connectors.md describes all"},
		{exitUsage, "submit nothing.yaml", "give the path of a file"},
		{exitUsage, "run pipeline.yaml --id ../x", "has examples"},
		{exitNotFound, "retry good --from nothing", "dlite show ID"},
		{exitOK, "resume", "dlite queue"},
		{exitOK, "resume local", "dlite delegates"},
		{exitOK, "limits pipeline:other 2", "dlite limits"},
		{exitUsage, "limits group 2", "it must be account"},
		{exitNotFound, "upgrades", "dlite upgrades set VERSION"},
		{exitUsage, "upgrades set 1.2.3", "of the form v1.2.3"},
		{exitUsage, "upgrades set v1.2.3 --share 101%", "from 1% to 100%"},
		{exitOK, "upgrades set v1.2.3 --share 20%", "dlite upgrades"},
		{exitOK, "upgrades", "v1.2.3"},
		{exitOK, "upgrades pause", "paused"},
		{exitOK, "upgrades continue", "running"},
		{exitOK, "upgrades rm", "stable version"},
		{exitUsage, "-c nowhere ls", "dlite login"},
		{exitUsage, "ls stages --branch main", "--branch and --text select runs, not stages"},
		{exitUsage, "ls triggers --status FAILED", "select runs and stages, not triggers"},
	} {
		code, out, errs := s.run(t, strings.Fields(c.args)...)
		assert.Equal(t, c.code, code, "%s\n%s%s", c.args, out, errs)
		assert.Contains(t, out+errs, c.want, c.args)
		assert.NotContains(t, out+errs, "\x1b", "no colours without a terminal")
	}
	code, _, errs := s.exec(t, s.environment(), "", "ls")
	assert.Equal(t, exitToken, code)
	assert.Contains(t, errs, "dlite login")
	code, _, errs = s.exec(t, s.environment("DLITE_URL="+s.URL, "DLITE_ACCOUNT=local", "DLITE_TOKEN=not-a-token"), "", "ls")
	assert.Equal(t, exitToken, code)
	assert.Contains(t, errs, "manager token ACCOUNT")
	code, _, errs = s.exec(t, s.environment(), "not-a-token\n", "login", s.URL, "--account", "local", "--store", "file")
	assert.Equal(t, exitToken, code, errs)
	code, out, errs := s.exec(t, s.environment("DLITE_URL=http://127.0.0.1:1", "DLITE_ACCOUNT=local", "DLITE_TOKEN=fake"), "", "ls", "triggers")
	assert.Equal(t, exitUnreachable, code)
	assert.Contains(t, errs, "cannot reach the manager")
	assert.Empty(t, out, "an empty list would be wrong")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "config.yaml"), []byte("contexts: {a: }\n"), 0o600))
	code, _, errs = s.exec(t, s.environment(), "", "ls")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, `the context "a"`)
}

// full is an output on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAnOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	p := &program{stdio: stdio{out: full{}}, ctx: t.Context(), cli: &cli{}}
	code, _ := classify(p.ctx, p.print("a", table{rows: [][]string{{"a"}}}))
	assert.Equal(t, exitUsage, code)
	w := &logWriter{c: &logsCommand{}, p: p}
	w.line("a", api.LogLine{Text: "a\n"})
	assert.ErrorContains(t, w.err, "writing the output: no space left on device")
}

// refuse returns a client of a server that gives every call the same answer.
func refuse(t *testing.T, status int) *api.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error_msg":"refused"}`)
	}))
	t.Cleanup(server.Close)
	c, err := api.New(api.Config{URL: server.URL, Account: "a", Token: "fake", HTTP: server.Client()})
	require.NoError(t, err)
	return c
}

func TestALogWithoutAnEndDoesNotHoldTheProgram(t *testing.T) {
	t.Parallel()
	var notes []string
	logs := newTails(t.Context(), refuse(t, http.StatusNotFound), nil, func(text string) { notes = append(notes, text) })
	logs.silence, logs.shortSilence = time.Millisecond, 2*time.Millisecond
	past := time.Now()
	logs.see([]part{
		{Label: "build/lost", Key: "a/lost", Started: past, Ended: past, step: true},
		{Label: "build/none", Key: "a/none", Started: past, Ended: past, step: true, mayLackLog: true},
	})
	logs.wait()
	assert.Equal(t, []string{"! the log of build/lost has no end: lines may be missing. \"dlite delegates\" shows whether its delegate is lost"}, notes)
}

func TestAStageThatMayNotBeFollowedHasNoResult(t *testing.T) {
	t.Parallel()
	running := object{stage: &api.Stage{ID: "a", Status: "RUNNING"}}
	_, err := follow(t.Context(), refuse(t, http.StatusForbidden), running, func(error) {}, func(object) {})
	assert.True(t, api.IsStatus(err, http.StatusForbidden), "%v", err)
}

func TestTheLogOfAStepIsThatOfItsOwnStageAttempt(t *testing.T) {
	t.Parallel()
	const stage = "pipeline.stages.build"
	parts := partsOfRun(&api.Run{Nodes: []api.Node{
		{Path: stage, Kind: "stage", StageID: "run.build.2"},
		{Path: stage + ".spec.execution.steps.test", Kind: "step", StepID: "test", LogKey: "run.build/test"},
	}})
	assert.Equal(t, "run.build/test", parts[1].Key)
}

func TestProgramsGetJSONYAMLOrNames(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	code, out, errs := s.run(t, "run", "pipeline.yaml", "--id", "a", "-o", "json", "--wait")
	require.Equal(t, exitOK, code, errs)
	var run api.Run
	require.NoError(t, json.Unmarshal([]byte(out), &run), out)
	assert.Equal(t, "SUCCEEDED", run.Status)
	assert.NotEmpty(t, run.Nodes)
	_, out, _ = s.run(t, "ls", "-o", "name")
	assert.Equal(t, "run/a\n", out)
	_, out, _ = s.run(t, "delegates", "-o", "yaml")
	var delegates []map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(out), &delegates), out)
	assert.Equal(t, "local", delegates[0]["name"])
	_, out, _ = s.run(t, "ls", "triggers", "-o", "json")
	assert.Equal(t, "[]\n", out)
}

// On a terminal the steps stay in view, with colours unless NO_COLOR is set.
func TestATerminalHasALiveView(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, colour := range []bool{true, false} {
		env := s.environment("DLITE_URL="+s.URL, "DLITE_ACCOUNT="+machine.Account, "DLITE_TOKEN="+s.token)
		if !colour {
			env = append(env, "NO_COLOR=1")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "failing.yaml", "--wait")
		cmd.Env, cmd.Dir = env, s.dir
		terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 20, Cols: 60})
		require.NoError(t, err)
		out, _ := io.ReadAll(terminal) // it ends with an error when the program ends
		_ = terminal.Close()
		_ = cmd.Wait()
		text := string(out)
		assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), text)
		assert.Contains(t, text, "build/greet | before")
		assert.Regexp(t, `\x1b\[\dA\x1b\[J`, text, "the block is painted again")
		last := text[strings.LastIndex(text, "\x1b[J"):]
		assert.Contains(t, last, "✓ build/greet")
		assert.Contains(t, last, "✗ build/then")
		assert.Equal(t, colour, strings.Contains(text, "\x1b[31mFAILED\x1b[0m"), text)
		for line := range strings.Lines(regexp.MustCompile(`\x1b\[\d*m`).ReplaceAllString(last, "")) {
			if strings.HasPrefix(line, "dlite:") {
				break
			}
			assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\r\n"))), 63, "a line must not wrap")
		}
	}
}

func TestTextOfOthersDoesNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a\uFFFD[2Jb c", clean("a\x1b[2Jb\nc"))
	assert.Equal(t, "a\uFFFDb", clean("a\u202eb"))
	assert.Equal(t, "red\x1b[31m x", cleanLine("red\x1b[31m\x1b[2J\x1b]0;title x"[:len("red\x1b[31m\x1b[2J")]+" x", true))
	assert.Equal(t, "red x", cleanLine("red\x1b[31m x\r\n", false))
	assert.NotContains(t, cleanLine("\x1b]0;title\a\x1bc", true), "\x1b")
}

func FuzzLogLinesAreSafe(f *testing.F) {
	f.Add("a\x1b[31mb\x1b[2J\x1b]0;t\a", true)
	f.Fuzz(func(t *testing.T, text string, colours bool) {
		left := regexp.MustCompile(`\x1b\[[^@-~]*m`).ReplaceAllString(cleanLine(text, colours), "")
		if strings.ContainsAny(left, "\x1b\x00\x07\x08\r\n\u009b") {
			t.Fatalf("%q", left)
		}
	})
}
