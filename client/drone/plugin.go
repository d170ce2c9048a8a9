package drone

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/client/drone/yaml"
	"github.com/delegate-io/dlite/task/stage"
)

const (
	// pluginTimeout limits all questions to the plugins for one stage.
	pluginTimeout = time.Minute
	// maxPluginAnswer is the size limit of the answer of a plugin, in bytes.
	maxPluginAnswer = 1 << 20
	// sealedEncoding is the content encoding of an encrypted answer.
	sealedEncoding = "aesgcm"
	// sealedKey is the size of the key of encrypted answers: the beginning of the token.
	sealedKey = 32
)

// The media types of the answers of the plugins. A plugin serves one of them.
const (
	secretAnswer      = "application/vnd.drone.secret.v1+json"
	registryAnswer    = "application/vnd.drone.registry.v1+json"
	environmentAnswer = "application/vnd.drone.env.v2+json"
)

// plugin is a server of the operator that answers questions about a build: an extension for Drone's runners.
type plugin struct {
	c               *Client
	name            string // in errors
	answer          string // media type
	endpoint, token string
}

// question is the body of the request to a plugin. Path and Name are for secrets only.
type question struct {
	Path  string `json:"path,omitempty"`
	Name  string `json:"name,omitempty"`
	Repo  record `json:"repo"`
	Build record `json:"build"`
}

func newQuestion(d *details) question {
	q := question{Repo: maps.Clone(d.Repo), Build: d.Build}
	for _, private := range []string{"secret", "signer"} { // keys of the repository
		delete(q.Repo, private)
	}
	return q
}

// consult adds the variables and the credentials of the plugins to the input of a pipeline, and lets the compiler ask
// for the secrets that it needs. It returns values to mask.
func (c *Client) consult(ctx context.Context, d *details, in *yaml.Input) (hidden []string, err error) {
	q := newQuestion(d)
	secrets := plugin{c, "secret", secretAnswer, c.cfg.SecretPlugin.Endpoint, c.cfg.SecretPlugin.Token}
	if secrets.endpoint != "" {
		in.External = func(s yaml.Secret) (string, error) {
			q := q
			q.Path, q.Name = s.Path, s.Key
			return secrets.secret(ctx, q)
		}
	}
	registries := plugin{c, "registry", registryAnswer, c.cfg.RegistryPlugin.Endpoint, c.cfg.RegistryPlugin.Token}
	var auths []struct{ Address, Username, Password string }
	if err := registries.ask(ctx, q, &auths); err != nil {
		return nil, err
	}
	for _, a := range auths {
		in.Registries = append(in.Registries, stage.Auth{Address: a.Address, Username: a.Username, Password: a.Password})
		hidden = append(hidden, a.Password)
	}
	environment := plugin{c, "environment", environmentAnswer, c.cfg.EnvironmentPlugin.Endpoint, c.cfg.EnvironmentPlugin.Token}
	var variables []struct {
		Name, Data string
		Mask       bool
	}
	if err := environment.ask(ctx, q, &variables); err != nil {
		return nil, err
	}
	in.Options.Environment = merge(in.Options.Environment, nil)
	for _, v := range variables {
		switch {
		case v.Name == "" || strings.ContainsAny(v.Name+v.Data, "\x00") || strings.Contains(v.Name, "="):
			return nil, fmt.Errorf("the %s plugin answered with a variable whose name or value is not valid", environment.name)
		case v.Mask:
			in.Hidden = merge(in.Hidden, map[string]string{v.Name: v.Data})
			hidden = append(hidden, v.Data)
		default:
			in.Options.Environment[v.Name] = v.Data
		}
	}
	return hidden, nil
}

// secret returns the value of a secret. It is empty if the plugin does not have it, or does not give it to pull requests.
func (p plugin) secret(ctx context.Context, q question) (string, error) {
	var answer struct {
		Data        string `json:"data"`
		Pull        bool   `json:"pull"`
		PullRequest bool   `json:"pull_request"`
	}
	if err := p.ask(ctx, q, &answer); err != nil {
		return "", err
	}
	if q.Build.text("event") == "pull_request" && !answer.Pull && !answer.PullRequest {
		return "", nil
	}
	return answer.Data, nil
}

// ask decodes the answer of the plugin into out, which does not change if there is no plugin, or no such value. The
// errors are for the users of the repository: they hold no text of the plugin, which goes to the log of the delegate.
func (p plugin) ask(ctx context.Context, q question, out any) error {
	if p.endpoint == "" {
		return nil
	}
	body, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("encoding the question for the %s plugin: %w", p.name, err)
	}
	pause := newPause()
	for failures := 1; ; failures++ {
		found, err := p.attempt(ctx, body, out)
		switch {
		case err == nil && !found:
			p.c.cfg.Log.Debug().Str("plugin", p.name).Str("path", q.Path).Str("name", q.Name).Msg("the plugin has no such value")
			return nil
		case err == nil:
			return nil
		}
		p.c.cfg.Log.Warn().Err(err).Str("plugin", p.name).Str("path", q.Path).Str("name", q.Name).Msg("the plugin has not answered a question")
		var refusal *client.Error
		switch {
		case errors.Is(err, client.ErrRetryable) && failures < updateErrors && pause.wait(ctx, err):
		case errors.As(err, &refusal) && refusal.Status == http.StatusNotFound:
			return nil // the plugin says so of every value that it cannot find
		case errors.As(err, &refusal) && refusal.Status != 0:
			return fmt.Errorf("the %s plugin of the runner answered with status %d: check its address and its token", p.name, refusal.Status)
		case errors.Is(err, client.ErrMalformed), errors.Is(err, client.ErrTooLarge):
			return fmt.Errorf("the %s plugin of the runner gave an answer that cannot be read: check its token", p.name)
		default:
			return fmt.Errorf("the %s plugin of the runner does not answer: check its address", p.name)
		}
	}
}

// attempt asks once. It reports whether the plugin has an answer.
func (p plugin) attempt(ctx context.Context, body []byte, out any) (bool, error) {
	failed := &client.Error{Method: http.MethodPost, Path: p.name}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint, bytes.NewReader(body))
	if err != nil {
		failed.Err = err
		return false, failed
	}
	p.sign(req, body, time.Now())
	resp, err := p.c.http.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // the address may hold a key
		}
		failed.Err = err
		return false, failed
	}
	defer resp.Body.Close() //nolint:errcheck // the answer has been read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxPluginAnswer+1))
	switch {
	case resp.StatusCode > 299:
		failed.Status, failed.Message = resp.StatusCode, string(b[:min(len(b), maxMessage)])
		return false, failed
	case err != nil:
		failed.Err = err
		return false, failed
	case len(b) > maxPluginAnswer:
		failed.Err = client.ErrTooLarge
		return false, failed
	case resp.StatusCode == http.StatusNoContent || len(b) == 0:
		return false, nil
	}
	if resp.Header.Get("Content-Encoding") == sealedEncoding {
		b, err = p.unseal(b)
	}
	if err != nil || json.Unmarshal(b, out) != nil { // the error could quote a secret
		return false, fmt.Errorf("%w: it is not the expected JSON, or not encrypted with the token", client.ErrMalformed)
	}
	return true, nil
}

// signed are the headers that the signature of a request covers, in their order. The path is not among them, because
// proxies in front of plugins change it.
var signed = []string{"accept", "accept-encoding", "content-type", "date", "digest"}

// sign sets the headers of a request and signs them (HTTP signatures, draft-cavage, hmac-sha256).
func (p plugin) sign(req *http.Request, body []byte, now time.Time) {
	sum := sha256.Sum256(body)
	encoding := "identity"
	if len(p.token) >= sealedKey {
		encoding = sealedEncoding
	}
	for name, value := range map[string]string{
		"Accept": p.answer, "Accept-Encoding": encoding, "Content-Type": "application/json",
		"Date": now.UTC().Format(http.TimeFormat), "Digest": "SHA-256=" + base64.StdEncoding.EncodeToString(sum[:]),
	} {
		req.Header.Set(name, value)
	}
	var lines []string
	for _, name := range signed {
		lines = append(lines, name+": "+req.Header.Get(name))
	}
	mac := hmac.New(sha256.New, []byte(p.token))
	mac.Write([]byte(strings.Join(lines, "\n")))
	req.Header.Set("Signature", fmt.Sprintf(`keyId="hmac-key",algorithm="hmac-sha256",headers="%s",signature="%s"`,
		strings.Join(signed, " "), base64.StdEncoding.EncodeToString(mac.Sum(nil))))
}

// unseal decrypts an answer: a nonce, and then the sealed text.
func (p plugin) unseal(b []byte) ([]byte, error) {
	if len(p.token) < sealedKey {
		return nil, errors.New("the token is too short for encrypted answers")
	}
	block, err := aes.NewCipher([]byte(p.token)[:sealedKey])
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	if len(b) < gcm.NonceSize() {
		return nil, io.ErrUnexpectedEOF
	}
	return gcm.Open(nil, b[:gcm.NonceSize()], b[gcm.NonceSize():], nil)
}
