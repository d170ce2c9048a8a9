package drone_test

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/client/drone"
	"github.com/delegate-io/dlite/client/drone/dronetest"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/task/stage"
)

// pluginToken is visibly fake, and long enough for encrypted answers.
const pluginToken = "visibly-fake-token-of-plugins-0123456789"

// asked is a question that a plugin got.
type asked struct {
	Path, Name  string
	Repo, Build map[string]any
	accept      string
}

// extension is a server of plugins: it checks each request as an extension of Drone does.
type extension struct {
	*httptest.Server
	t     *testing.T
	token string
	// answer returns the value for a question, nil if there is none, and the status of the answer.
	answer func(asked) (any, int)

	mu    sync.Mutex
	asked []asked
}

func newExtension(t *testing.T, token string, answer func(asked) (any, int)) *extension {
	t.Helper()
	e := &extension{t: t, token: token, answer: answer}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

var signatureParts = regexp.MustCompile(`(\w+)="([^"]*)"`)

// checked reports whether the signature of a request is right: it covers the digest, which covers the body.
func (e *extension) checked(r *http.Request, body []byte) bool {
	parts := map[string]string{}
	for _, m := range signatureParts.FindAllStringSubmatch(r.Header.Get("Signature"), -1) {
		parts[m[1]] = m[2]
	}
	var text []string
	for _, name := range strings.Fields(parts["headers"]) {
		text = append(text, name+": "+r.Header.Get(name))
	}
	mac := hmac.New(sha256.New, []byte(e.token))
	_, _ = io.WriteString(mac, strings.Join(text, "\n"))
	given, err := base64.StdEncoding.DecodeString(parts["signature"])
	sum := sha256.Sum256(body)
	at, dateErr := http.ParseTime(r.Header.Get("Date"))
	return err == nil && dateErr == nil && hmac.Equal(given, mac.Sum(nil)) && parts["algorithm"] == "hmac-sha256" && parts["keyId"] == "hmac-key" &&
		parts["headers"] == "accept accept-encoding content-type date digest" && time.Since(at).Abs() < time.Hour &&
		r.Header.Get("Digest") == "SHA-256="+base64.StdEncoding.EncodeToString(sum[:]) && r.Header.Get("X-Drone-Token") == ""
}

func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	q := asked{accept: r.Header.Get("Accept")}
	if err != nil || r.Method != http.MethodPost || !e.checked(r, body) || json.Unmarshal(body, &q) != nil {
		http.Error(w, "Invalid Signature", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	e.asked = append(e.asked, q)
	e.mu.Unlock()
	answer, status := e.answer(q)
	if answer == nil {
		w.WriteHeader(status)
		return
	}
	b, err := json.Marshal(answer)
	assert.NoError(e.t, err)
	if r.Header.Get("Accept-Encoding") == "aesgcm" {
		b = sealed(e.t, e.token, b)
		w.Header().Set("Content-Encoding", "aesgcm")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

func (e *extension) questions() []asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]asked(nil), e.asked...)
}

// sealed encrypts an answer, with a nonce that is not random.
func sealed(t *testing.T, token string, b []byte) []byte {
	block, err := aes.NewCipher([]byte(token)[:32])
	assert.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	assert.NoError(t, err)
	nonce := make([]byte, gcm.NonceSize())
	return gcm.Seal(nonce, nonce, b, nil)
}

// externalSecret has steps that print a secret with a path, and another one that no step needs.
const externalSecret = `kind: pipeline
type: exec
name: default
clone: {disable: true}
steps:
- name: a
  environment: {TOKEN: {from_secret: password}}
  commands:
  - echo "length $(printf %s "$TOKEN" | wc -c | tr -d ' ')"
  - echo "value $TOKEN"
- name: b
  environment: {TOKEN: {from_secret: password}}
  commands: [echo]
- name: skipped
  environment: {TOKEN: {from_secret: unused}}
  commands: [echo]
  when: {event: tag}
---
kind: secret
name: password
get: {path: team/db, name: pass}
---
kind: secret
name: unused
get: {path: team/unused, name: pass}
`

// The plugin is asked once for the secrets that the steps need. The values are masked.
func TestASecretComesFromTheSecretPlugin(t *testing.T) {
	t.Parallel()
	const value = "visibly-fake-external-value"
	for name, c := range map[string]struct {
		token  string
		answer any
		status int
		event  string
		length string
	}{
		"encrypted":                            {pluginToken, map[string]any{"data": value}, 200, "push", "length 27"},
		"with a short token":                   {"short", map[string]any{"data": value}, 200, "push", "length 27"},
		"for a pull request":                   {pluginToken, map[string]any{"data": value, "pull": true}, 200, "pull_request", "length 27"},
		"for a pull request, by its new name":  {pluginToken, map[string]any{"data": value, "pull_request": true}, 200, "pull_request", "length 27"},
		"withheld from a pull request":         {pluginToken, map[string]any{"data": value}, 200, "pull_request", "length 0"},
		"missing: no content":                  {pluginToken, nil, 204, "push", "length 0"},
		"missing: not found":                   {pluginToken, nil, 404, "push", "length 0"},
		"missing: an answer without the value": {pluginToken, map[string]any{}, 200, "push", "length 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			e := newExtension(t, c.token, func(asked) (any, int) { return c.answer, c.status })
			start(t, s, 1, func(cfg *drone.Config) {
				cfg.SecretPlugin.Endpoint, cfg.SecretPlugin.Token = e.URL+"/any/path", c.token
			})
			got := wait(t, s, s.Add(dronetest.Build{
				Type: "exec", Config: externalSecret, Members: map[string]any{"event": c.event},
				Repository: map[string]any{"secret": "visibly-fake-repository-key"},
			}))
			require.Equal(t, "success", got.Status, "%+v", got)
			text := logOf(got.Steps[0])
			assert.Contains(t, text, c.length+"\n")
			assert.NotContains(t, text, value)
			questions := e.questions()
			require.Len(t, questions, 1)
			q := questions[0]
			assert.Equal(t, "application/vnd.drone.secret.v1+json", q.accept)
			assert.Equal(t, [2]string{"team/db", "pass"}, [2]string{q.Path, q.Name})
			assert.Equal(t, "octo/hello", q.Repo["slug"])
			assert.Equal(t, c.event, q.Build["event"])
			assert.NotContains(t, q.Repo, "secret", "the key of the repository stays here")
		})
	}
}

// A plugin that cannot answer is an error of the stage, without the text of the plugin.
func TestAPluginThatFailsIsAnErrorOfTheStage(t *testing.T) {
	t.Parallel()
	const private = "visibly-fake-private-text"
	for name, c := range map[string]struct {
		token   string
		answer  any
		status  int
		message string
	}{
		"refusal":        {pluginToken, private, 403, "the secret plugin of the runner answered with status 403"},
		"another token":  {strings.ToUpper(pluginToken), nil, 200, "status 400"},
		"no JSON object": {pluginToken, private, 200, "cannot be read"},
		"too long":       {pluginToken, strings.Repeat("x", 2<<20), 200, "cannot be read"},
		"a redirect":     {pluginToken, private, 307, "status 307"},
		"not the answer": {pluginToken, []string{private}, 200, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			e := newExtension(t, pluginToken, func(asked) (any, int) { return c.answer, c.status })
			start(t, s, 1, func(cfg *drone.Config) { cfg.SecretPlugin.Endpoint, cfg.SecretPlugin.Token = e.URL, c.token })
			got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: externalSecret}))
			assert.Equal(t, "error", got.Status)
			assert.Contains(t, got.Error, `the secret "password": the secret plugin`)
			assert.Contains(t, got.Error, c.message)
			assert.NotContains(t, got.Error, private)
			assert.Empty(t, got.Steps)
		})
	}
}

// A plugin that is away for a moment is asked again.
func TestAPluginIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	var e *extension
	e = newExtension(t, pluginToken, func(asked) (any, int) {
		if len(e.questions()) < 3 {
			return nil, http.StatusServiceUnavailable
		}
		return map[string]any{"data": "visibly-fake"}, http.StatusOK
	})
	start(t, s, 1, func(cfg *drone.Config) { cfg.SecretPlugin.Endpoint, cfg.SecretPlugin.Token = e.URL, pluginToken })
	got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: externalSecret}))
	assert.Equal(t, "success", got.Status, "%+v", got)
	assert.Contains(t, logOf(got.Steps[0]), "length 12\n")
}

// The server's secrets win over the runner's, and these over those of the plugin.
func TestTheSecretPluginIsTheLastSource(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string]map[string]string{"of the server": {"password": "fake-server"}, "of the runner": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			e := newExtension(t, pluginToken, func(asked) (any, int) { return map[string]any{"data": "visibly-fake"}, http.StatusOK })
			start(t, s, 1, func(cfg *drone.Config) {
				cfg.SecretPlugin.Endpoint, cfg.SecretPlugin.Token = e.URL, pluginToken
				cfg.Options.Secrets = map[string]string{"password": "fake-runner"}
			})
			got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: externalSecret, Secrets: secrets}))
			assert.Equal(t, "success", got.Status, "%+v", got)
			assert.Contains(t, logOf(got.Steps[0]), "length 11\n")
			assert.NotContains(t, logOf(got.Steps[0]), "fake-")
			assert.Empty(t, e.questions())
		})
	}
}

// The environment plugin has variables of all steps. Its secret values are masked and not stored.
func TestVariablesComeFromTheEnvironmentPlugin(t *testing.T) {
	t.Parallel()
	s := serve(t)
	e := newExtension(t, pluginToken, func(asked) (any, int) {
		return []map[string]any{
			{"name": "PLAIN", "data": "visible"}, {"name": "HIDDEN", "data": "visibly-fake-variable", "mask": true},
			{"name": "OWN", "data": "of the plugin"}, {"name": "DRONE_REPO", "data": "of the plugin"},
		}, http.StatusOK
	})
	root, found := make(chan string, 1), make(chan string, 1)
	s.OnCall = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/logs/upload") {
			found <- contents(t, <-root)
		}
	}
	root <- start(t, s, 1, func(cfg *drone.Config) {
		cfg.EnvironmentPlugin.Endpoint, cfg.EnvironmentPlugin.Token = e.URL, pluginToken
		cfg.Options.Environment = map[string]string{"PLAIN": "of the settings"}
	})
	got := wait(t, s, s.Add(dronetest.Build{
		Type: "exec", Config: execPipeline("- name: a\n  environment: {OWN: mine}\n  commands: ['echo [$PLAIN] [$HIDDEN] [$OWN] [$DRONE_REPO] $(printf %s \"$HIDDEN\" | wc -c)']\n"),
	}))
	require.Equal(t, "success", got.Status, "%+v", got)
	text := logOf(got.Steps[0])
	assert.Contains(t, text, "[visible]")
	assert.Contains(t, text, "[mine] [octo/hello] 21")
	assert.NotContains(t, text, "visibly-fake-variable")
	assert.NotContains(t, <-found, "visibly-fake-variable")
	require.NotEmpty(t, e.questions())
	assert.Equal(t, "application/vnd.drone.env.v2+json", e.questions()[0].accept)
}

// The registry plugin has credentials for the images of the steps.
func TestCredentialsComeFromTheRegistryPlugin(t *testing.T) {
	t.Parallel()
	s := serve(t)
	e := newExtension(t, pluginToken, func(asked) (any, int) {
		return []map[string]any{{"address": "registry.example", "username": "octo", "password": "visibly-fake-password"}}, http.StatusOK
	})
	inputs := make(chan yaml.Input, 1)
	start(t, s, 1, func(cfg *drone.Config) {
		cfg.RegistryPlugin.Endpoint, cfg.RegistryPlugin.Token = e.URL, pluginToken
		cfg.Compile = func(config []byte, name string, in yaml.Input) (*yaml.Plan, error) {
			inputs <- in
			return shell("echo visibly-fake-password")(config, name, in)
		}
	})
	got := wait(t, s, s.Add(dronetest.Build{}))
	require.Equal(t, "success", got.Status, "%+v", got)
	assert.NotContains(t, logOf(got.Steps[0]), "visibly-fake-password")
	assert.Equal(t, []stage.Auth{{Address: "registry.example", Username: "octo", Password: "visibly-fake-password"}}, (<-inputs).Registries)
	assert.Equal(t, "application/vnd.drone.registry.v1+json", e.questions()[0].accept)
}

// The limits of the runner end other builds with an error.
func TestTheRunnerRunsOnlyTheBuildsOfItsLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit  func(*drone.Config)
		status string
	}{
		"repository": {func(c *drone.Config) { c.Repositories = []string{"other/*"} }, "error"},
		"event":      {func(c *drone.Config) { c.Events = []string{"tag"} }, "error"},
		"trusted":    {func(c *drone.Config) { c.TrustedOnly = true }, "error"},
		"allowed":    {func(c *drone.Config) { c.Repositories, c.Events = []string{"other/*", "octo/*"}, []string{"push"} }, "success"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			start(t, s, 1, c.limit)
			got := wait(t, s, s.Add(dronetest.Build{Type: "exec", Config: execPipeline("- {name: a, commands: [echo]}\n")}))
			assert.Equal(t, c.status, got.Status, "%+v", got)
			if c.status == "error" {
				assert.Contains(t, got.Error, "use another runner")
			}
		})
	}
}
