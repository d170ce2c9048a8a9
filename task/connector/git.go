package connector

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// The form user@host:path of SSH.
var scpForm = regexp.MustCompile(`^([A-Za-z0-9._-]+)@(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(.+)$`)

// testGit lists the refs of a repository over HTTPS or SSH.
func testGit(ctx context.Context, p *probe) *failure {
	if strings.HasPrefix(p.c.Address, "ssh://") || scpForm.MatchString(p.c.Address) {
		return testGitSSH(ctx, p)
	}
	return testGitHTTP(ctx, p)
}

// testGitHTTP sends the first request of the smart HTTP protocol.
func testGitHTTP(ctx context.Context, p *probe) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	if p.secret(secretKey) != "" {
		return fail(stepAddress, "use the secret token or password, or an address that begins with ssh://", "the secret key works only over SSH")
	}
	if repo := p.option(optionRepository); repo != "" {
		u = at(u, repo)
	}
	user, password, credential := p.login()
	service, what := "git-upload-pack", "read"
	if p.write() {
		service, what = "git-receive-pack", "write"
	}
	a, f := p.get(ctx, with(at(u, "info", "refs"), "service", service), func(r *http.Request) {
		if credential != "" {
			r.SetBasicAuth(cmp.Or(user, "git"), password)
		}
	})
	if f != nil {
		return f
	}
	if f := explainStatus(a, subject{
		server: u.Host, credential: credential, needs: "token, or username and password",
		resource: "the repository " + strings.TrimPrefix(u.Path, "/"), right: "the permission to " + what + " the repository",
	}); f != nil {
		return f
	}
	refs, ok := countRefs(a.body, "# service="+service)
	if !ok {
		return fail(stepAnswer, "write the address as it is for git clone, or the address of the server and the option repository",
			"%s answers, but not as a Git server for %s", u.Host, u.Path)
	}
	reportGit(p, credential, what, refs)
	return nil
}

func reportGit(p *probe, credential, what string, refs int) {
	if credential != "" {
		p.report.ok(stepAuthentication, "the server accepts %s", credential)
	} else {
		p.report.ok(stepAuthentication, "the server requires no credentials for the repository")
	}
	p.report.ok(stepPermission, "the delegate may %s the repository, which has %d refs", what, refs)
}

// countRefs counts the refs of an advertisement in pkt-lines. First is the first line, or "". It reports false if the text
// is no advertisement.
func countRefs(text []byte, first string) (int, bool) {
	refs, lines := 0, 0
	for len(text) >= 4 {
		size, err := strconv.ParseUint(string(text[:4]), 16, 16)
		if err != nil || size > 0 && size < 4 || int(size) > len(text) && lines == 0 {
			return 0, false
		}
		if size == 0 {
			text = text[4:]
			continue
		}
		if int(size) > len(text) { // the rest of a long list was not read
			break
		}
		line := string(bytes.TrimRight(text[4:size], "\n"))
		text = text[size:]
		lines++
		switch {
		case lines == 1 && first != "":
			if line != first {
				return 0, false
			}
		case strings.Contains(line, "capabilities^{}"), strings.HasSuffix(line, "^{}"):
		case refLine.MatchString(line):
			refs++
		default:
			return 0, false
		}
	}
	return refs, lines > 0
}

var refLine = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64}) \S+`)

// basic returns a function that sets credentials in the Basic scheme.
func basic(user, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}
