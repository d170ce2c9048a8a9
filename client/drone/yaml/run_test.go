//go:build unix

package yaml

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/local"
	"github.com/delegate-io/dlite/driver/local/host"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/router"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// bench runs plans on a real driver.
type bench struct {
	t      *testing.T
	id     string
	routes task.Handler
	mu     sync.Mutex
	logs   map[string]*bytes.Buffer // guarded by mu
}

func newBench(t *testing.T, id string) *bench {
	t.Helper()
	b := &bench{t: t, id: id, logs: map[string]*bytes.Buffer{}}
	work, memory := testbed.StageFolders(t)
	d, err := local.New(local.Config{Host: host.Config{WorkDir: work, MemoryDir: memory}})
	require.NoError(t, err)
	stages := transaction.New(d, transaction.WithLedger(t.TempDir()), transaction.WithLog(b.open))
	require.NoError(t, stages.Recover(t.Context()))
	b.routes = router.New(stages.Routes())
	t.Cleanup(func() {
		b.send("CI_DOCKER_CLEANUP_TASK", stage.CleanupRequest{GroupID: id, Network: id}, &stage.CleanupResponse{})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, stages.Close(ctx))
		assert.NoError(t, d.Close())
	})
	return b
}

// keyLog is the log of a step.
type keyLog struct {
	b   *bench
	key string
}

func (b *bench) open(_ context.Context, target logger.StreamConfig) logger.TaskLog {
	return keyLog{b, target.Key}
}

func (l keyLog) Write(p []byte) (int, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.logs[l.key] == nil {
		l.b.logs[l.key] = &bytes.Buffer{}
	}
	return l.b.logs[l.key].Write(p)
}

func (keyLog) Close(context.Context) error { return nil }

func (b *bench) log(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.logs[key] == nil {
		return ""
	}
	return b.logs[key].String()
}

func (b *bench) send(typ string, payload, answer any) {
	b.t.Helper()
	data, err := json.Marshal(payload)
	require.NoError(b.t, err)
	r, _ := task.Serve(context.WithoutCancel(b.t.Context()), b.routes, &task.Task{ID: typ, Type: typ, Data: data})
	require.Equal(b.t, task.OK, r.Code, "%+v", r)
	require.NoError(b.t, json.Unmarshal(r.Data, answer))
}

// run runs the steps of a plan in their order and returns their exit codes by name.
func (b *bench) run(plan *Plan) map[string]int {
	b.t.Helper()
	plan.Init.GroupID, plan.Init.Network.ID, plan.Init.LogKey = b.id, b.id, "clone"
	plan.Init.LogConfig = &stage.LogConfig{URL: "http://log.example"}
	var opened stage.InitResponse
	b.send("CI_DOCKER_INITIALIZE_TASK", plan.Init, &opened)
	require.Equal(b.t, stage.Success, opened.Status, "%s\n%s", opened.ErrorMessage, b.log("clone"))
	codes := map[string]int{}
	for _, s := range plan.Steps {
		if s.Clone || s.Skipped {
			continue
		}
		s.Execute.GroupID, s.Execute.LogKey, s.Execute.LogConfig = b.id, s.Name, plan.Init.LogConfig
		var answer stage.ExecuteResponse
		b.send("CI_DOCKER_EXECUTE_TASK", s.Execute, &answer)
		if s.Detached {
			assert.Equal(b.t, stage.Success, answer.Status, "%s: %s", s.Name, answer.ErrorMessage)
			continue
		}
		codes[s.Name] = answer.ExitCode
		assert.Empty(b.t, answer.FailureKind, "%s: %s", s.Name, answer.ErrorMessage)
	}
	return codes
}

const fakePassword = "not-a-real-password"

// locked requires the fake password.
func locked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := r.BasicAuth(); name != "me" || password != fakePassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// repository serves a repository to one user, and returns the variables of a pull request in it.
func repository(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=Test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=main"}, args...)...)
		cmd.Dir = filepath.Join(dir, "project")
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "git %v: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	commit := func(file string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "project", file), []byte(file), 0o600))
		git("add", "-A")
		git("commit", "-q", "-m", file)
		return git("rev-parse", "HEAD")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "project"), 0o700))
	git("init", "-q")
	commit("first")
	git("checkout", "-q", "-b", "change")
	change := commit("change")
	git("update-ref", "refs/pull/7/head", change)
	git("checkout", "-q", "main")
	commit("second")
	program, err := exec.LookPath("git")
	require.NoError(t, err)
	backend := &cgi.Handler{Path: program, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	server := httptest.NewServer(locked(backend))
	t.Cleanup(server.Close)
	return map[string]string{
		"DRONE_GIT_HTTP_URL": server.URL + "/project/.git", "DRONE_COMMIT_REF": "refs/pull/7/head", "DRONE_COMMIT_SHA": change,
		"DRONE_BRANCH": "main", "DRONE_BUILD_EVENT": "pull_request",
	}
}

const execPipeline = `
kind: pipeline
type: exec
clone: {depth: 1}
steps:
- name: look
  environment:
    PATH: $PATH:/opt/visible
    TOKEN: {from_secret: token}
  commands:
  - cat first second change
  - git log -1 --format=%P | wc -w | tr -d ' '
  - git ls-remote origin refs/heads/main | cut -f2
  - test "$PWD" = "$DRONE_WORKSPACE" && test -z "$(ls -A "$HOME")" && echo kept > "$HOME/file" && echo ${DRONE_BRANCH}
  - echo "token $TOKEN step $DRONE_STEP_NAME $DRONE_STEP_NUMBER $CI"
  - case "$PATH" in *:/opt/visible) echo path;; esac
- name: fail
  commands:
  - cat "$HOME/file"
  - test ! -e "$HOME/.netrc"
  - (exit 3)
  - echo not reached
- name: early
  commands: ["exit 78"]
`

func TestAnExecPipelineRunsOnTheHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, "drone-exec")
	vars := repository(t)
	machine, _, _ := strings.Cut(strings.TrimPrefix(vars["DRONE_GIT_HTTP_URL"], "http://"), "/")
	text, err := substitute([]byte(execPipeline), vars)
	require.NoError(t, err)
	plan := compiled(t, string(text), Input{
		Variables: vars, Secrets: map[string]string{"token": "not-a-real-token"},
		Netrc: Netrc{Machine: machine, Login: "me", Password: fakePassword},
	})
	codes := b.run(plan)
	assert.Equal(t, map[string]int{"look": 0, "fail": 3, "early": 78}, codes)
	assert.Contains(t, b.log("clone"), "merged into branch main")
	for _, line := range []string{
		"+ cat first second change\nfirstsecondchange", "\n2\n", "\nrefs/heads/main\n", "\nmain\n", "step look 2 true\n", "\npath\n",
	} {
		assert.Contains(t, b.log("look"), line)
	}
	assert.Contains(t, b.log("fail"), "kept\n")
	assert.NotContains(t, b.log("fail"), "not reached\n")
	for _, key := range []string{"clone", "look", "fail"} {
		assert.NotContains(t, b.log(key), "not-a-real")
	}
}

const dockerPipeline = `
kind: pipeline
type: docker
volumes: [{name: cache, temp: {}}]
services:
- name: web
  image: IMAGE
  commands: ["mkdir /tmp/www && echo served > /tmp/www/index.html && httpd -f -p 8080 -h /tmp/www"]
- name: own program
  image: SERVICE
steps:
- name: write
  image: IMAGE
  pull: never
  volumes: [{name: cache, path: /cache}]
  commands:
  - pwd && cat change
  - echo cached > /cache/file && echo shared > file
- name: plugin
  image: PLUGIN
  settings: {key: [a, 1], secret: {from_secret: token}}
  volumes: [{name: cache, path: /other}]
- name: fetch
  image: IMAGE
  user: "1000"
  commands:
  - for i in $(seq 100); do wget -q -O - http://web:8080/ && exit 0; usleep 100000; done; exit 1
`

func TestADockerPipelineRunsInContainers(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	b := newBench(t, "drone-docker-"+time.Now().Format("150405.000"))
	service := engine.ImageWith(t, `WORKDIR /usr`, `CMD ["sh", "-c", "pwd; sleep 1000"]`)
	plugin := engine.ImageWith(t, `CMD ["sh", "-c", "echo $PLUGIN_KEY $PLUGIN_SECRET; cat file /other/file; pwd"]`)
	vars := repository(t)
	machine, _, _ := strings.Cut(strings.TrimPrefix(vars["DRONE_GIT_HTTP_URL"], "http://"), "/")
	text := strings.NewReplacer("IMAGE", engine.Image, "SERVICE", service, "PLUGIN", plugin).Replace(dockerPipeline)
	plan := compiled(t, text, Input{
		Variables: vars, Secrets: map[string]string{"token": "not-a-real-token"}, Netrc: Netrc{Machine: machine, Login: "me", Password: fakePassword},
	})
	assert.Equal(t, map[string]int{"write": 0, "plugin": 0, "fetch": 0}, b.run(plan))
	assert.Contains(t, b.log("write"), "+ pwd && cat change\n/drone/src\nchange")
	assert.Equal(t, "a,1 ******\nshared\ncached\n/drone/src\n", b.log("plugin"))
	assert.Contains(t, b.log("fetch"), "served\n")
	// A service without commands starts in the directory of its image.
	assert.Eventually(t, func() bool { return b.log("own program") == "/usr\n" }, 10*time.Second, 10*time.Millisecond)
}
