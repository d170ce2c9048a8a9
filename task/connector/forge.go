package connector

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// forge is the API of a Git provider.
type forge interface {
	// name is the name of the provider for messages.
	name() string
	// api returns the address of the API of a server.
	api(base *url.URL) *url.URL
	// authorize adds the credentials to a request.
	authorize(r *http.Request, user, secret string, token bool)
	// user and repository return the calls that show the user, and a repository.
	user(api *url.URL) *url.URL
	repository(api *url.URL, name string) *url.URL
	// userName returns the name in the answer to the call of user.
	userName(a *answer) string
	// canWrite reports whether the answer to the call of repository permits writing, and whether the API tells.
	canWrite(a *answer) (write, known bool)
}

// testForge asks the API of a Git provider for the user and the permissions of the credentials.
func testForge(ctx context.Context, p *probe, f forge) *failure {
	base, bad := p.base()
	if bad != nil {
		return bad
	}
	user, secret, credential := p.login()
	if credential == "" {
		return fail(stepAddress, "set the secret token", "connectors of the kind %s need credentials", p.c.Kind)
	}
	api := f.api(base)
	prepare := func(r *http.Request) {
		r.Header.Set("Accept", "application/json")
		f.authorize(r, user, secret, p.secret(secretToken) != "")
	}
	about := subject{server: f.name() + " at " + api.Host, credential: credential, right: "the scope to read the user"}
	a, bad := p.get(ctx, f.user(api), prepare)
	if bad != nil {
		return bad
	}
	repo := p.option(optionRepository)
	// Tokens of apps and of one repository have no user.
	if a.status != http.StatusForbidden || repo == "" || explainStatus(a, about).step != stepPermission {
		if bad := explainStatus(a, about); bad != nil {
			return bad
		}
		name := f.userName(a)
		if name == "" { // such as the page of a sign-in with the status 200 or 203
			return fail(stepAuthentication, "check the token and the address of the connector", "%s does not say whose %s is; the answer may be a sign-in page", about.server, strings.TrimPrefix(credential, "the "))
		}
		p.report.ok(stepAuthentication, "%s accepts %s; it belongs to %s", about.server, credential, name)
	}
	if repo == "" {
		return nil
	}
	about.resource, about.right = "the repository "+repo, "access to the repository"
	if a, bad = p.get(ctx, f.repository(api, repo), prepare); bad != nil {
		return bad
	}
	if bad := explainStatus(a, about); bad != nil {
		return bad
	}
	write, known := f.canWrite(a)
	switch {
	case p.write() && known && !write:
		return fail(stepPermission, "give the user or the token the permission to write, or remove the option access", "%s may read the repository %s but not write to it", credential, repo)
	case p.write() && known:
		p.report.ok(stepPermission, "%s may write to the repository %s", credential, repo)
	case p.write():
		p.report.advise(stepPermission, "test a connector of the kind git with the address of the repository: it tries the right to write",
			"%s may read the repository %s; the API does not tell if it may write", credential, repo)
	default:
		p.report.ok(stepPermission, "%s may read the repository %s", credential, repo)
	}
	return nil
}

// member returns a value in a JSON object by its path, or nil.
func member(body []byte, path ...string) any {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return nil
	}
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// field returns a text in a JSON object by its path.
func field(body []byte, path ...string) string {
	s, _ := member(body, path...).(string)
	return s
}

func flag(body []byte, path ...string) (value, known bool) {
	value, known = member(body, path...).(bool)
	return value, known
}

func number(body []byte, path ...string) float64 {
	n, _ := member(body, path...).(float64)
	return n
}

type github struct{}

func (github) name() string { return "GitHub" }
func (github) api(u *url.URL) *url.URL {
	if u.Host == "github.com" || u.Host == "www.github.com" {
		return &url.URL{Scheme: u.Scheme, Host: "api.github.com"}
	}
	return at(u, "api", "v3")
}

func (github) authorize(r *http.Request, _, secret string, _ bool) {
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Accept", "application/vnd.github+json")
}
func (github) user(u *url.URL) *url.URL                    { return at(u, "user") }
func (github) repository(u *url.URL, name string) *url.URL { return at(u, "repos", name) }
func (github) userName(a *answer) string                   { return field(a.body, "login") }
func (github) canWrite(a *answer) (write, known bool) {
	return flag(a.body, "permissions", "push")
}

type gitlab struct{}

func (gitlab) name() string            { return "GitLab" }
func (gitlab) api(u *url.URL) *url.URL { return at(u, "api", "v4") }
func (gitlab) authorize(r *http.Request, _, secret string, _ bool) {
	r.Header.Set("Authorization", "Bearer "+secret)
}
func (gitlab) user(u *url.URL) *url.URL { return at(u, "user") }
func (gitlab) repository(u *url.URL, name string) *url.URL {
	next := *u
	next.Path, next.RawPath = u.Path+"/projects/"+name, u.EscapedPath()+"/projects/"+url.PathEscape(name)
	return &next
}
func (gitlab) userName(a *answer) string { return field(a.body, "username") }
func (gitlab) canWrite(a *answer) (write, known bool) {
	const developer = 30
	level := max(number(a.body, "permissions", "project_access", "access_level"), number(a.body, "permissions", "group_access", "access_level"))
	return level >= developer, level > 0
}

type bitbucket struct{}

func (bitbucket) name() string { return "Bitbucket" }
func (bitbucket) api(u *url.URL) *url.URL {
	if u.Host == "bitbucket.org" {
		return &url.URL{Scheme: u.Scheme, Host: "api.bitbucket.org", Path: "/2.0"}
	}
	return at(u, "rest", "api", "1.0")
}

func (bitbucket) authorize(r *http.Request, user, secret string, token bool) {
	if token && user == "" {
		r.Header.Set("Authorization", "Bearer "+secret)
		return
	}
	r.SetBasicAuth(user, secret)
}

func (bitbucket) user(u *url.URL) *url.URL {
	if strings.HasSuffix(u.Path, "/rest/api/1.0") {
		return with(at(u, "profile", "recent", "repos"), "limit", "1") // the answer names the user in a header
	}
	return at(u, "user")
}

func (bitbucket) repository(u *url.URL, name string) *url.URL {
	if project, repo, ok := strings.Cut(name, "/"); ok && strings.HasSuffix(u.Path, "/rest/api/1.0") {
		return at(u, "projects", project, "repos", repo)
	}
	return at(u, "repositories", name)
}

func (bitbucket) userName(a *answer) string {
	return cmp.Or(field(a.body, "username"), field(a.body, "display_name"), a.header.Get("X-Ausername"))
}
func (bitbucket) canWrite(*answer) (write, known bool) { return false, false }

type gitea struct{}

func (gitea) name() string            { return "Gitea" }
func (gitea) api(u *url.URL) *url.URL { return at(u, "api", "v1") }
func (gitea) authorize(r *http.Request, user, secret string, token bool) {
	if !token {
		r.SetBasicAuth(user, secret)
		return
	}
	r.Header.Set("Authorization", "token "+secret)
}
func (gitea) user(u *url.URL) *url.URL                    { return at(u, "user") }
func (gitea) repository(u *url.URL, name string) *url.URL { return at(u, "repos", name) }
func (gitea) userName(a *answer) string                   { return field(a.body, "login") }
func (gitea) canWrite(a *answer) (write, known bool) {
	return flag(a.body, "permissions", "push")
}

type azureRepos struct{}

func (azureRepos) name() string            { return "Azure Repos" }
func (azureRepos) api(u *url.URL) *url.URL { return u }
func (azureRepos) authorize(r *http.Request, user, secret string, _ bool) {
	r.SetBasicAuth(user, secret)
}
func (azureRepos) user(u *url.URL) *url.URL {
	return with(at(u, "_apis", "connectionData"), "api-version", "7.1-preview.1")
}

func (azureRepos) repository(u *url.URL, name string) *url.URL {
	project, repo, ok := strings.Cut(name, "/")
	if !ok {
		repo = project
	}
	return with(at(u, project, "_apis", "git", "repositories", repo), "api-version", "7.1")
}

func (azureRepos) userName(a *answer) string {
	if a.status != http.StatusOK { // 203 is a sign-in page
		return ""
	}
	return cmp.Or(field(a.body, "authenticatedUser", "providerDisplayName"), field(a.body, "authenticatedUser", "customDisplayName"))
}
func (azureRepos) canWrite(*answer) (write, known bool) { return false, false }
