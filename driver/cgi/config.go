package cgi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// config is the config of a task (docs/protocol.md, section 2).
type config struct {
	Executable *executableConfig `json:"executable_config"`
	Repository *repository       `json:"repository"`
	Method     string            `json:"method"`
	Endpoint   string            `json:"endpoint"`
	Headers    map[string]string `json:"headers"`
	Envs       []string          `json:"envs"`
}

type executableConfig struct {
	Name        string             `json:"name"`
	Version     string             `json:"version"`
	Executables []stage.Executable `json:"executables"`
	// Compressed applies to all executables.
	Compressed bool `json:"compressed"`
}

type repository struct {
	Clone    string `json:"clone"`
	Ref      string `json:"ref"`
	SHA      string `json:"sha"`
	Download string `json:"download"`
}

// readConfig decodes the config of a task, sets the defaults, and validates it before
// any download.
func readConfig(t *task.Task) (*config, error) {
	c := &config{}
	if len(t.Config) > 0 {
		if err := json.Unmarshal(t.Config, c); err != nil {
			return nil, task.BadRequest(fmt.Errorf("decoding the config of task %s (%s): %w", t.ID, t.Type, err))
		}
	}
	if c.Executable == nil && c.Repository == nil {
		return nil, &task.Error{
			Status: http.StatusNotFound,
			Err:    fmt.Errorf("this delegate has no route for task type %q, and the task names no program: no executable_config and no repository", t.Type),
		}
	}
	if c.Method == "" {
		c.Method = http.MethodPost
	}
	if c.Endpoint == "" {
		c.Endpoint = "/"
	}
	if !isToken(c.Method) {
		return nil, task.BadRequest(fmt.Errorf("method %q is not valid", c.Method))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if !isToken(name) || strings.ContainsAny(c.Headers[name], "\r\n\x00") {
			return nil, task.BadRequest(fmt.Errorf("header %q is not valid", name))
		}
	}
	if err := checkVariables(c.Envs); err != nil {
		return nil, task.BadRequest(err)
	}
	return c, nil
}

// checkVariables checks that all are of the form NAME=value. Its error quotes no value.
func checkVariables(list []string) error {
	for i, v := range list {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.Contains(v, "\x00") {
			return fmt.Errorf("variable %d of %d is not of the form NAME=value", i+1, len(list))
		}
	}
	return nil
}

// isToken reports whether s can be a method or a header's name.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// environment returns the variables of the program. Later ones win: the basic variables
// of the delegate, common, the variables of the task, the CGI variables (RFC 3875).
func (c *config) environment(common []string, file string, length int) ([]string, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Opaque != "" {
		return nil, task.BadRequest(errors.New("the endpoint is not valid")) // err quotes it
	}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path, u.RawPath = "/"+u.Path, ""
	}
	host := u.Host
	if host == "" {
		host = "localhost"
	}
	var env []string // the last one of a name counts
	for name, value := range process.Environment() {
		env = append(env, name+"="+value)
	}
	env = append(append(env, common...), c.Envs...)
	contentType := "application/json"
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		value := c.Headers[name]
		switch strings.ToLower(name) {
		case "content-type":
			contentType = value
		case "host":
			host = value
		case "content-length":
		case "proxy": // would become HTTP_PROXY, which has another meaning
		default:
			env = append(env, "HTTP_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
		}
	}
	name, port := host, "80"
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, port = host[:i], host[i+1:]
	}
	return append(env,
		"RUN_AS_CGI=true",
		"GATEWAY_INTERFACE=CGI/1.1",
		"SERVER_SOFTWARE=dlite",
		"SERVER_PROTOCOL=HTTP/1.1",
		"SERVER_NAME="+name,
		"SERVER_PORT="+port,
		"HTTP_HOST="+host,
		"REMOTE_ADDR=127.0.0.1",
		"REMOTE_HOST=127.0.0.1",
		"REQUEST_METHOD="+c.Method,
		"REQUEST_URI="+u.RequestURI(),
		"QUERY_STRING="+u.RawQuery,
		"PATH_INFO="+u.Path,
		"SCRIPT_NAME=",
		"SCRIPT_FILENAME="+file,
		"CONTENT_TYPE="+contentType,
		"CONTENT_LENGTH="+strconv.Itoa(length),
	), nil
}
