// Command connectortest is a standalone task that tests a connector. It reports whether a web
// service, a git repository or an image registry is reachable and accepts the credentials.
//
// It is a CGI program, run by package driver/cgi. The task's data, and the answer:
//
//	{"type": "registry", "url": "https://registry.example", "username": "ci", "password": "${{secrets.registry}}"}
//	{"ok": true, "message": "the registry takes the credentials", "millis": 41}
//
// type is http, git or registry. If the connector does not work, the answer has the reason as
// its message. Without RUN_AS_CGI the program reads the data from standard input and prints
// the answer.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/delegate-io/dlite/examples/tasks/internal/gitrefs"
	"github.com/delegate-io/dlite/examples/tasks/internal/standalone"
)

type input struct {
	Type     string `json:"type"`
	URL      string `json:"url"`
	Username string `json:"username"`
	Password string `json:"password"`
}

type output struct {
	OK      bool   `json:"ok"`
	Message string `json:"message"`
	// Millis is the duration of the test in milliseconds.
	Millis int64 `json:"millis"`
}

func main() { os.Exit(standalone.Main(connect)) }

func connect(c *standalone.Call, in input) (output, error) {
	tests := map[string]func(*standalone.Call, input) (string, error){"http": web, "git": git, "registry": registry}
	test, ok := tests[in.Type]
	if !ok {
		return output{}, fmt.Errorf("type %q is not known; http, git and registry are", in.Type)
	}
	c.Say("Testing the connector to %s", standalone.WithoutCredentials(in.URL))
	start := time.Now()
	message, err := test(c, in)
	out := output{OK: err == nil, Message: message, Millis: time.Since(start).Milliseconds()}
	if err != nil {
		out.Message = explain(err)
	}
	c.Say("%s", out.Message)
	return out, nil
}

// explain removes the URL, which may contain credentials, from an error.
func explain(err error) string {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err.Error()
	}
	return err.Error()
}

func web(c *standalone.Call, in input) (string, error) {
	resp, err := get(c, in.URL, func(r *http.Request) { basic(r, in) })
	if err != nil {
		return "", err
	}
	if resp.status >= http.StatusBadRequest {
		return "", fmt.Errorf("the server answers %d", resp.status)
	}
	return fmt.Sprintf("the server answers %d", resp.status), nil
}

func git(c *standalone.Call, in input) (string, error) {
	refs, err := gitrefs.List(c.Context, c.Client, in.URL, in.Username, in.Password)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the repository can be read; it has %d refs", len(refs.Commits)), nil
}

// registry sends the requests of an image pull: the first answer names the token service, the
// token service issues a token, and the second request uses it.
func registry(c *standalone.Call, in input) (string, error) {
	target := strings.TrimRight(in.URL, "/") + "/v2/"
	resp, err := get(c, target, nil)
	if err != nil {
		return "", err
	}
	switch {
	case resp.status == http.StatusOK && in.Username == "" && in.Password == "":
		return "the registry can be reached; it wants no credentials", nil
	case resp.status == http.StatusOK: // it may still refuse wrong credentials
		resp, err = get(c, target, func(r *http.Request) { basic(r, in) })
	case resp.status == http.StatusUnauthorized:
		resp, err = authorized(c, in, target, resp.header.Get("WWW-Authenticate"))
	}
	switch {
	case err != nil:
		return "", err
	case resp.status == http.StatusUnauthorized || resp.status == http.StatusForbidden:
		return "", fmt.Errorf("the registry does not take the credentials (status %d)", resp.status)
	case resp.status != http.StatusOK:
		return "", fmt.Errorf("the server answers %d, and not as a registry does", resp.status)
	}
	return "the registry takes the credentials", nil
}

var parameter = regexp.MustCompile(`([a-zA-Z]+)="([^"]*)"`)

func authorized(c *standalone.Call, in input, target, challenge string) (*response, error) {
	scheme, rest, _ := strings.Cut(challenge, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return get(c, target, func(r *http.Request) { basic(r, in) })
	}
	parameters := map[string]string{}
	for _, m := range parameter.FindAllStringSubmatch(rest, -1) {
		parameters[strings.ToLower(m[1])] = m[2]
	}
	realm, err := url.Parse(parameters["realm"])
	if err != nil || realm.Host == "" {
		return nil, errors.New("the registry does not say where its tokens come from")
	}
	if strings.HasPrefix(target, "https:") && realm.Scheme != "https" {
		return nil, errors.New("the registry wants the credentials sent without encryption")
	}
	query := realm.Query()
	query.Set("service", parameters["service"])
	realm.RawQuery = query.Encode()
	resp, err := get(c, realm.String(), func(r *http.Request) { basic(r, in) })
	if err != nil {
		return nil, fmt.Errorf("the registry's token service: %w", err)
	}
	if resp.status != http.StatusOK {
		return resp, nil
	}
	var token struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if json.Unmarshal(resp.body, &token) != nil || token.Token+token.Access == "" {
		return nil, errors.New("the registry's token service gives no token")
	}
	return get(c, target, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+cmp.Or(token.Token, token.Access)) })
}

func basic(r *http.Request, in input) {
	if in.Username != "" || in.Password != "" {
		r.SetBasicAuth(in.Username, in.Password)
	}
}

type response struct {
	status int
	header http.Header
	body   []byte
}

func get(c *standalone.Call, target string, prepare func(*http.Request)) (*response, error) {
	if u, err := url.Parse(target); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the url must begin with http:// or https:// and a host")
	}
	req, err := http.NewRequestWithContext(c.Context, http.MethodGet, target, http.NoBody)
	if err != nil {
		return nil, err
	}
	if prepare != nil {
		prepare(req)
	}
	resp, err := c.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return &response{status: resp.StatusCode, header: resp.Header, body: body}, err
}
