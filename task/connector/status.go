package connector

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// subject names the parts of a request for messages.
type subject struct {
	server     string // such as GitHub
	credential string // such as "the token"; "" without one
	needs      string // secrets that the kind takes
	resource   string // such as "the repository acme/app"; "" without one
	right      string // such as "the scope repo"
}

// explainStatus returns the failure that a status means, or nil for a success.
func explainStatus(a *answer, s subject) *failure {
	said := serverMessage(a)
	credential := cmp.Or(s.credential, "requests without credentials")
	limited := a.header.Get("Retry-After") != "" || a.header.Get("X-Ratelimit-Remaining") == "0" || a.header.Get("Ratelimit-Remaining") == "0"
	full := a.status == http.StatusInsufficientStorage || a.status >= 500 && saysFull(a.body)
	switch {
	case a.status < 300:
		return nil
	case a.status == http.StatusUnauthorized && s.credential == "":
		return fail(stepAuthentication, "give the connector the secrets "+s.needs, "%s requires credentials (401)%s", s.server, said)
	case a.status == http.StatusUnauthorized:
		return fail(stepAuthentication, "check that the secret has the current value, that it has not expired, and that it is for this server",
			"%s rejects %s (401)%s", s.server, credential, said)
	case a.status == http.StatusTooManyRequests, a.status == http.StatusForbidden && limited, a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
		return fail(stepAnswer, "wait, and let fewer programs use the same credentials; requests with credentials usually have a higher limit",
			"%s limits the number of requests (%d)%s%s", s.server, a.status, again(a.header, time.Now()), said)
	case a.status == http.StatusForbidden:
		return fail(stepPermission, "give it "+cmp.Or(s.right, "the permission")+", or use other credentials",
			"%s accepts %s but does not permit %s (403)%s", s.server, credential, cmp.Or(s.resource, "the request"), said)
	case a.status == http.StatusNotFound && s.resource != "":
		return fail(stepPermission, "correct the name, or give "+credential+" access to it: many servers answer 404 for both",
			"%s does not know %s, or hides it from %s (404)%s", s.server, s.resource, credential, said)
	case full:
		return fail(stepAnswer, "free space on the server, or extend its disk or its quota", "%s has no free space (%d)%s", s.server, a.status, said)
	case a.status >= 500:
		return fail(stepAnswer, "look into the logs of the server, and of a proxy before it", "%s has an error of its own (%d)%s", s.server, a.status, said)
	}
	return fail(stepAnswer, "check the kind and the address of the connector", "%s answers %d, which this kind of server does not%s", s.server, a.status, said)
}

// saysFull reports whether an error of a server tells of a full disk.
func saysFull(body []byte) bool {
	text := strings.ToLower(string(body))
	for _, s := range []string{"no space left", "disk quota exceeded", "storagefull", "storage full", "disk full", "insufficient storage"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return storageFull.MatchString(text)
}

// storageFull matches the detail of a registry with files: 28 is the number of the error on Linux.
var storageFull = regexp.MustCompile(`"drivername":"filesystem","enclosed":\{[^{}]*"err":28\}`)

// again says when a limit ends.
func again(h http.Header, now time.Time) string {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return ", try again after " + (time.Duration(seconds) * time.Second).String()
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return ", try again after " + at.UTC().Format(time.RFC3339)
	}
	if at, err := strconv.ParseInt(cmp.Or(h.Get("X-Ratelimit-Reset"), h.Get("Ratelimit-Reset")), 10, 64); err == nil && at > now.Unix() && at < now.AddDate(1, 0, 0).Unix() {
		return ", try again after " + time.Unix(at, 0).UTC().Format(time.RFC3339)
	}
	return ""
}

const maxQuote = 200

// serverMessage returns the message of a server for the end of a sentence. Pages in HTML have none.
func serverMessage(a *answer) string {
	text := ""
	var body struct {
		Message string `json:"message"`
		Error   any    `json:"error"`
		Detail  string `json:"error_description"`
		Errors  []any  `json:"errors"`
	}
	switch {
	case json.Unmarshal(a.body, &body) == nil:
		text = cmp.Or(body.Detail, body.Message)
		if text == "" {
			text = messageIn(body.Error)
		}
		if text == "" && len(body.Errors) > 0 {
			text = messageIn(body.Errors[0])
		}
	case strings.Contains(a.header.Get("Content-Type"), "xml"), strings.HasPrefix(strings.TrimSpace(string(a.body)), "<?xml"):
		text = between(string(a.body), "<Code>", "</Code>") + " " + between(string(a.body), "<Message>", "</Message>")
	case strings.HasPrefix(a.header.Get("Content-Type"), "text/plain"):
		text = string(a.body)
	}
	if text = oneLine(text, maxQuote*4); strings.TrimSpace(text) == "" {
		return ""
	}
	return ": " + text
}

// messageIn returns the message of an error in JSON.
func messageIn(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		text := ""
		for _, name := range []string{"code", "message", "detail"} {
			if s, ok := v[name].(string); ok && s != "" {
				text += " " + s
			}
		}
		return strings.TrimSpace(text)
	}
	return ""
}

func between(text, begin, end string) string {
	_, rest, ok := strings.Cut(text, begin)
	if !ok {
		return ""
	}
	inner, _, _ := strings.Cut(rest, end)
	return inner
}

// explainProxy returns the failure that the answer of a proxy to CONNECT means, or nil.
func explainProxy(host string, status int) *failure {
	switch status {
	case http.StatusOK:
		return nil
	case http.StatusProxyAuthRequired:
		return fail(stepProxy, "write user and password into the proxy's URL in the delegate's environment (HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT)",
			"the proxy of the delegate requires credentials for %s (407)", host)
	case http.StatusForbidden:
		return fail(stepProxy, "permit the host in the proxy, or put it into NO_PROXY of the delegate if the proxy is not needed",
			"the proxy of the delegate refuses a connection to %s (403)", host)
	}
	return fail(stepProxy, "check that the proxy can reach the host, or put the host into NO_PROXY of the delegate if the proxy is not needed",
		"the proxy of the delegate cannot connect to %s (%d)", host, status)
}
