package drone_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
)

func execPipeline(steps string) string {
	return "kind: pipeline\ntype: exec\nname: default\nclone: {disable: true}\nsteps:\n" + steps
}

// summary lists the steps with their status and exit code.
func summary(st dronetest.Stage) (list []string) {
	for _, s := range st.Steps {
		list = append(list, fmt.Sprintf("%s %s %d", s.Name, s.Status, s.ExitCode))
	}
	return list
}

func logOf(s dronetest.Step) string {
	var b strings.Builder
	for _, l := range s.Log {
		b.WriteString(l.Out)
	}
	return b.String()
}

// pipelines takes the pipelines of package yaml.
func pipelines(*drone.Config) {}

// The statuses of steps and stages (docs/protocol.md 6).
func TestStatusesAndExitCodes(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 4, pipelines)
	for name, c := range map[string]struct {
		steps  string
		status string
		code   int
		want   []string
	}{
		"a failure skips the rest": {
			"- {name: a, commands: [exit 3]}\n- {name: b, commands: [echo]}\n- {name: c, commands: [echo], when: {status: [failure]}}\n",
			"failure", 3, []string{"a failure 3", "b skipped 0", "c success 0"},
		},
		"an ignored failure": {
			"- {name: a, commands: [exit 3], failure: ignore}\n- {name: b, commands: [echo]}\n",
			"success", 0, []string{"a failure 3", "b success 0"},
		},
		"exit code 78 ends the stage as a success": {
			"- {name: a, commands: [exit 78]}\n- {name: b, commands: [echo]}\n- {name: c, commands: [echo], when: {status: [success, failure]}}\n",
			"success", 0, []string{"a success 78", "b skipped 0", "c skipped 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: execPipeline(c.steps)}))
			assert.Equal(t, c.want, summary(got), "%+v", got)
			assert.Equal(t, c.status, got.Status)
			assert.Equal(t, c.code, got.ExitCode)
			assert.Equal(t, 1, got.Ends)
		})
	}
}

// Rule N2: the error names what is wrong.
func TestAPipelineThatCannotRunIsAnErrorOfTheStage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, pipelines)
	for config, message := range map[string]string{
		"kind: pipeline\ntype: exec\nname: other\n": "default",
		"kind: [": "",
		execPipeline("- {name: a, commands: [echo], what: ever}"): "what",
	} {
		got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: config}))
		assert.Equal(t, "error", got.Status, config)
		assert.NotEmpty(t, got.Error)
		assert.Contains(t, got.Error, message)
		assert.Empty(t, got.Steps)
		assert.Equal(t, 1, got.Ends)
	}
}

// Each step has the variables that the reference of Drone lists. A variable may be empty, but not absent.
func TestStepsHaveTheVariablesOfDrone(t *testing.T) {
	t.Parallel()
	const everywhere = `CI DRONE DRONE_BRANCH DRONE_BUILD_ACTION DRONE_BUILD_CREATED DRONE_BUILD_DEBUG DRONE_BUILD_EVENT DRONE_BUILD_FINISHED DRONE_BUILD_LINK
DRONE_BUILD_NUMBER DRONE_BUILD_PARENT DRONE_BUILD_STARTED DRONE_BUILD_STATUS DRONE_BUILD_TRIGGER DRONE_COMMIT DRONE_COMMIT_AFTER DRONE_COMMIT_AUTHOR
DRONE_COMMIT_AUTHOR_AVATAR DRONE_COMMIT_AUTHOR_EMAIL DRONE_COMMIT_AUTHOR_NAME DRONE_COMMIT_BEFORE DRONE_COMMIT_BRANCH DRONE_COMMIT_LINK
DRONE_COMMIT_MESSAGE DRONE_COMMIT_REF DRONE_COMMIT_SHA DRONE_DEPLOY_TO DRONE_FAILED_STAGES DRONE_FAILED_STEPS DRONE_GIT_HTTP_URL DRONE_GIT_SSH_URL
DRONE_REMOTE_URL DRONE_REPO DRONE_REPO_BRANCH DRONE_REPO_LINK DRONE_REPO_NAME DRONE_REPO_NAMESPACE DRONE_REPO_OWNER DRONE_REPO_PRIVATE DRONE_REPO_SCM
DRONE_REPO_VISIBILITY DRONE_SOURCE_BRANCH DRONE_STAGE_ARCH DRONE_STAGE_DEPENDS_ON DRONE_STAGE_FINISHED DRONE_STAGE_KIND DRONE_STAGE_MACHINE
DRONE_STAGE_NAME DRONE_STAGE_NUMBER DRONE_STAGE_OS DRONE_STAGE_STARTED DRONE_STAGE_STATUS DRONE_STAGE_TYPE DRONE_STAGE_VARIANT DRONE_STEP_NAME
DRONE_STEP_NUMBER DRONE_SYSTEM_HOST DRONE_SYSTEM_HOSTNAME DRONE_SYSTEM_PROTO DRONE_SYSTEM_VERSION DRONE_TARGET_BRANCH DRONE_WORKSPACE
CI_BUILD_EVENT CI_BUILD_NUMBER CI_BUILD_STATUS CI_COMMIT_BRANCH CI_COMMIT_SHA CI_JOB_STATUS CI_REPO CI_SYSTEM_HOST`
	s := serve(t)
	start(t, s, 2, pipelines)
	for name, c := range map[string]struct {
		members map[string]any
		more    string
	}{
		"push": {nil, ""},
		"tag": {map[string]any{"event": "tag", "ref": "refs/tags/v2026.1.2-rc1+b7"}, ` DRONE_TAG CI_TAG DRONE_SEMVER DRONE_SEMVER_BUILD DRONE_SEMVER_MAJOR DRONE_SEMVER_MINOR
DRONE_SEMVER_PATCH DRONE_SEMVER_PRERELEASE DRONE_SEMVER_SHORT DRONE_CALVER DRONE_CALVER_SHORT DRONE_CALVER_MAJOR DRONE_CALVER_MINOR DRONE_CALVER_MICRO`},
		"pull request": {map[string]any{"event": "pull_request", "ref": "refs/pull/7/head"}, " DRONE_PULL_REQUEST DRONE_PULL_REQUEST_TITLE CI_PULL_REQUEST"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: ['env | cut -d= -f1']}\n"), Members: c.members}))
			require.Equal(t, "success", got.Status, "%+v", got)
			names := strings.Fields(logOf(got.Steps[0]))
			for _, v := range strings.Fields(everywhere + c.more) {
				assert.Contains(t, names, v)
			}
		})
	}
}

// A build is cancelled while a step runs: the step and the stage are killed at once.
func TestACancelledBuildIsKilled(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, pipelines)
	build := s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: [sleep 600]}\n- {name: b, commands: [echo]}\n")})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.Await(ctx, build, func(list []dronetest.Stage) bool {
		return len(list[0].Steps) == 2 && list[0].Steps[0].Status == "running"
	})
	require.NoError(t, err)
	s.Cancel(build)
	got := wait(t, s, build)
	assert.Equal(t, "killed", got.Status)
	assert.Equal(t, []string{"a killed 0", "b skipped 0"}, summary(got))
	next := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: [echo]}\n")}))
	assert.Equal(t, "success", next.Status, "the slot is free again")
}

// The server does not report a cancellation that came before the watch. The build's status does.
func TestACancellationBeforeTheWatchIsSeen(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var build int64
	ready := make(chan struct{})
	s.OnCall = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/watch") {
			<-ready
			s.Cancel(build) // the watch is registered after this
		}
	}
	start(t, s, 1, pipelines)
	build = s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: [sleep 600]}\n")})
	close(ready)
	begun := time.Now()
	wait(t, s, build)
	next := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: ['true']}\n")}))
	assert.NotEmpty(t, next.Status)
	assert.Less(t, time.Since(begun), 20*time.Second)
}

// One watch is open at each moment, so the client does not ask for the status of the build again and again: that
// costs the server a call of its Git provider.
func TestWatchesOverlap(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.Hold = 400 * time.Millisecond
	var watches, details atomic.Int64
	many := make(chan struct{})
	s.OnCall = func(r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/watch"):
			if watches.Add(1) == 12 {
				close(many)
			}
		case r.Method == http.MethodGet:
			details.Add(1)
		}
	}
	start(t, s, 1, pipelines)
	build := s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: [sleep 600]}\n")})
	<-many
	assert.LessOrEqual(t, details.Load(), int64(2), "one to open the stage, and one after the first second")
	s.Cancel(build)
	assert.Equal(t, "killed", wait(t, s, build).Status)
}

// A stage ends when the time-out of its repository is over.
func TestTheTimeOutOfTheRepositoryKillsAStage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, pipelines)
	got := wait(t, s, s.Add(dronetest.Build{
		Type: "exec", Config: execPipeline("- {name: a, commands: [sleep 600]}\n- {name: b, commands: [echo]}\n"), Repository: map[string]any{"timeout": 2},
	}))
	assert.Equal(t, "killed", got.Status)
	assert.Contains(t, got.Error, "time-out")
	assert.Equal(t, []string{"a killed 137", "b skipped 0"}, summary(got))
}

// Secrets of the server and of the pipeline and the password of the repository are masked, and
// neither they nor the credentials are written to the state.
func TestSecretsAreMaskedAndNotStored(t *testing.T) {
	t.Parallel()
	s := serve(t)
	root, found := make(chan string, 1), make(chan string, 1)
	s.OnCall = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/logs/upload") {
			found <- contents(t, <-root)
		}
	}
	root <- start(t, s, 1, pipelines)
	got := wait(t, s, s.Add(dronetest.Build{
		Type:    "exec",
		Config:  execPipeline("- name: a\n  environment: {TOKEN: {from_secret: token}}\n  commands: ['echo token $TOKEN', 'echo unfair-guess', 'echo fake-netrc-pass']\n"),
		Secrets: map[string]string{"token": "visibly-fake-token", "other": "unfair-guess"},
		Netrc:   &[3]string{"git.example", "octo", "fake-netrc-pass"},
	}))
	require.Equal(t, "success", got.Status, got.Error)
	text := logOf(got.Steps[0])
	assert.Contains(t, text, "token ")
	stored := <-found
	assert.Contains(t, stored, "running")
	for _, value := range []string{"visibly-fake-token", "unfair-guess", "fake-netrc-pass"} {
		assert.NotContains(t, text, value)
		assert.NotContains(t, stored, value)
		assert.NotContains(t, stored, base64.StdEncoding.EncodeToString([]byte(value)))
	}
}

// contents returns the content of all files in a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	assert.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, _ := os.ReadFile(path) // it may have been removed
			all.WriteString(path + "\n")
			all.Write(b)
		}
		return nil
	}))
	return all.String()
}

// Lines arrive while the step runs. The step ends when its line has arrived.
func TestLinesArriveLive(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, pipelines)
	flag := filepath.Join(t.TempDir(), "seen")
	build := s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: ['echo hello', 'until [ -e " + flag + " ]; do sleep 0.01; done']}\n")})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.Await(ctx, build, func(list []dronetest.Stage) bool {
		if len(list[0].Steps) == 0 {
			return false
		}
		for _, l := range list[0].Steps[0].Live {
			if l.Out == "hello\n" {
				return true
			}
		}
		return false
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(flag, nil, 0o600))
	assert.Equal(t, "success", wait(t, s, build).Status)
}

// The server is restarted while a stage runs.
func TestAStageSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, pipelines)
	build := s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: ['sleep 0.5; echo over']}\n- {name: b, commands: [echo]}\n")})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := s.Await(ctx, build, func(list []dronetest.Stage) bool {
		return len(list[0].Steps) > 0 && list[0].Steps[0].Status == "running"
	})
	require.NoError(t, err)
	s.SetDown(true)
	<-time.After(time.Second)
	s.SetDown(false)
	got := wait(t, s, build)
	assert.Equal(t, []string{"a success 0", "b success 0"}, summary(got))
	assert.Contains(t, logOf(got.Steps[0]), "over\n")
	assert.Equal(t, 1, got.Ends)
}

func TestAWrongSecretIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c, err := drone.New(drone.Config{Endpoint: s.URL, Secret: "another"})
	require.NoError(t, err)
	_, err = c.Register(t.Context(), &client.Registration{})
	require.ErrorIs(t, err, client.ErrUnauthorized)
	assert.NotContains(t, err.Error(), "another")
	for _, endpoint := range []string{"", "drone.example", "ftp://drone.example", "https://user:fake@drone.example", "https://drone.example?x=1"} {
		_, err := drone.New(drone.Config{Endpoint: endpoint, Secret: "x"})
		require.Error(t, err, endpoint)
		assert.NotContains(t, err.Error(), "fake")
	}
}

// A plugin writes a card to its output. The log does not have it.
func TestCardsAreUploaded(t *testing.T) {
	t.Parallel()
	card := base64.StdEncoding.EncodeToString([]byte(`{"schema":"https://card.example","data":{"passed":3}}`))
	config := execPipeline("- {name: a, commands: ['echo one', 'printf \"\\033]1338;" + card + "\\033]0m\\n\" > $DRONE_CARD_PATH', 'echo two']}\n")
	for _, old := range []bool{false, true} {
		s := serve(t)
		s.NoCards = old
		start(t, s, 1, pipelines)
		got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: config}))
		require.Equal(t, "success", got.Status, got.Error)
		assert.Contains(t, logOf(got.Steps[0]), "two\n")
		for _, l := range got.Steps[0].Log {
			assert.False(t, strings.HasPrefix(l.Out, "\x1b]1338;"), l.Out)
		}
		if !old {
			assert.JSONEq(t, `{"passed":3}`, got.Steps[0].Card)
			assert.Equal(t, "https://card.example", got.Steps[0].Schema)
		}
	}
}

// A step with "failure: fast" ends the stage at once: a step beside it is killed.
func TestAFastFailureStopsTheOtherSteps(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, pipelines)
	got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: execPipeline(
		"- {name: root, commands: [echo]}\n- {name: long, commands: [sleep 600], depends_on: [root]}\n" +
			"- {name: fast, commands: [sleep 0.3; exit 4], failure: fast, depends_on: [root]}\n- {name: next, commands: [echo], depends_on: [fast]}\n")}))
	assert.Equal(t, "failure", got.Status, got.Error)
	assert.ElementsMatch(t, []string{"root success 0", "long killed 137", "fast failure 4", "next skipped 0"}, summary(got))
}

// Secrets in the file are decrypted with the secret of the repository, except for a pull request
// from a fork.
func TestSecretsOfTheFileAreDecrypted(t *testing.T) {
	t.Parallel()
	const key = "a-secret-of-the-repo-of-32-bytes"
	block, err := aes.NewCipher([]byte(key))
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := make([]byte, gcm.NonceSize())
	data := base64.StdEncoding.EncodeToString(gcm.Seal(nonce, nonce, []byte("visibly-fake-token"), nil))
	config := "kind: secret\nname: token\ndata: " + data + "\n---\n" +
		execPipeline("- {name: a, environment: {TOKEN: {from_secret: token}}, commands: ['test \"$TOKEN\" = visibly-fake-$SUFFIX', 'echo token $TOKEN']}\n")
	config = strings.Replace(config, "environment: {", "environment: {SUFFIX: token, ", 1)
	s := serve(t)
	start(t, s, 1, pipelines)
	got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: config}))
	assert.Equal(t, "success", got.Status, "%+v", got)
	assert.NotContains(t, logOf(got.Steps[0]), "visibly-fake-token")
	fork := map[string]any{"event": "pull_request", "ref": "refs/pull/7/head", "source_repo": "mallory/hello"}
	got = wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: config, Members: fork}))
	assert.Equal(t, "failure", got.Status, "a fork gets no secret: %+v", got)
}

// Text of a repository or a commit with the form of a reference is data: the users of the server
// must not read the secrets of the delegate.
func TestUsersOfTheServerReachNoSecretsOfTheDelegate(t *testing.T) {
	t.Parallel()
	s := serve(t)
	start(t, s, 1, pipelines)
	const reference = "${{secrets.delegate://password}} <{ x | getAsBase64 }>"
	got := wait(t, s, s.Add(dronetest.Build{
		Type: "exec", Members: map[string]any{"message": reference},
		Config: execPipeline("- name: a\n  environment: {VALUE: \"$${{secrets.delegate://password}} <{ x | getAsBase64 }>\"}\n" +
			"  commands: [\"printenv DRONE_COMMIT_MESSAGE VALUE\"]\n"),
	}))
	require.Equal(t, "success", got.Status, "%+v", got)
	text := logOf(got.Steps[0])
	assert.Contains(t, text, reference+"\n"+reference+"\n")
	assert.NotContains(t, text, "hush-of-the-delegate")
}
