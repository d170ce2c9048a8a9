package connector

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// testRegistry sends the requests of a pull or a push: the first answer names the scheme, the token service issues a token,
// and the token is used.
func testRegistry(ctx context.Context, p *probe) *failure {
	user, password, credential := p.login()
	if p.secret(secretKey) != "" { // a key file of Google
		user = "_json_key"
	}
	if credential != "" && user == "" {
		user = map[string]string{kindACR: "00000000-0000-0000-0000-000000000000", kindGAR: "oauth2accesstoken"}[p.c.Kind]
	}
	return p.registry(ctx, user, password, credential)
}

// registry tests a registry with these credentials.
func (p *probe) registry(ctx context.Context, user, password, credential string) *failure {
	u, f := p.base()
	if f != nil {
		return f
	}
	u.Path = strings.TrimSuffix(u.Path, "/v2")
	r := &registryCall{p: p, root: at(u, "v2"), user: user, password: password, about: subject{
		server: "the registry " + u.Host, credential: credential, needs: "username and password, or token",
	}}
	r.root.Path += "/"
	r.root.RawPath = ""
	repo := p.option(optionRepository)
	if p.c.Kind == kindDockerHub && repo != "" && !strings.Contains(repo, "/") {
		repo = "library/" + repo
	}
	scope := ""
	if repo != "" {
		scope = "repository:" + repo + ":pull"
		if p.write() {
			scope += ",push"
		}
	}
	if f := r.authorize(ctx, scope); f != nil {
		return f
	}
	if repo == "" {
		return nil
	}
	return r.use(ctx, repo)
}

// registryCall has the credentials of one test of a registry.
type registryCall struct {
	p              *probe
	root           *url.URL
	user, password string
	about          subject
	prepare        func(*http.Request)
}

var challengeMember = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)

// authorize finds the scheme of the registry and uses the credentials.
func (r *registryCall) authorize(ctx context.Context, scope string) *failure {
	a, f := r.p.get(ctx, r.root, nil)
	if f != nil {
		return f
	}
	challenge := a.header.Get("WWW-Authenticate")
	scheme, rest, _ := strings.Cut(challenge, " ")
	switch {
	case a.status == http.StatusOK && !isRegistry(a):
		return fail(stepAnswer, "check the address: it is that of the registry, without the names of images", "%s answers, but not as a registry", r.about.server)
	case a.status == http.StatusOK && r.about.credential == "":
		r.p.report.ok(stepAuthentication, "%s requires no credentials", r.about.server)
		return nil
	case a.status == http.StatusOK, a.status == http.StatusUnauthorized && strings.EqualFold(scheme, "Basic"):
		return r.basic(ctx, a)
	case a.status == http.StatusUnauthorized && strings.EqualFold(scheme, "Bearer"):
		return r.bearer(ctx, rest, scope)
	case a.status == http.StatusUnauthorized:
		return fail(stepAnswer, "check the address of the connector", "%s requires credentials in a scheme that the delegate does not know: %q", r.about.server, scheme)
	case a.status == http.StatusNotFound:
		return fail(stepAnswer, "check the address: it is that of the registry, without the names of images", "%s answers, but not as a registry (404)", r.about.server)
	}
	return explainStatus(a, r.about)
}

func isRegistry(a *answer) bool {
	return a.header.Get("Docker-Distribution-Api-Version") != "" || !strings.Contains(a.header.Get("Content-Type"), "html")
}

func (r *registryCall) basic(ctx context.Context, first *answer) *failure {
	if r.about.credential == "" {
		return explainStatus(first, r.about)
	}
	r.prepare = basic(r.user, r.password)
	a, f := r.p.get(ctx, r.root, r.prepare)
	if f != nil {
		return f
	}
	if f := explainStatus(a, r.about); f != nil {
		return f
	}
	r.p.report.ok(stepAuthentication, "%s accepts %s", r.about.server, r.about.credential)
	return nil
}

// bearer gets a token from the service that the registry names.
func (r *registryCall) bearer(ctx context.Context, challenge, scope string) *failure {
	service, f := tokenService(challenge, r.about.server, r.root.Scheme, scope)
	if f != nil {
		return f
	}
	a, f := r.p.get(ctx, service, func(req *http.Request) {
		if r.about.credential != "" {
			req.SetBasicAuth(r.user, r.password)
		}
	})
	if f != nil {
		return f
	}
	about := r.about
	about.server = "the token service " + service.Host
	if f := explainStatus(a, about); f != nil {
		return f
	}
	token := cmp.Or(field(a.body, "token"), field(a.body, "access_token"))
	if token == "" {
		return fail(stepAnswer, "look into the log of the token service", "%s issues no token", about.server)
	}
	r.p.set.Add(token)
	r.prepare = bearer(token)
	if r.about.credential != "" {
		r.p.report.ok(stepAuthentication, "%s accepts %s", about.server, r.about.credential)
	} else {
		r.p.report.ok(stepAuthentication, "%s issues a token without credentials", about.server)
	}
	return nil
}

// tokenService returns the request for a token that the challenge of a server demands, in its part after the scheme Bearer.
// The server was called with the scheme https or http.
func tokenService(challenge, server, scheme, scope string) (*url.URL, *failure) {
	members := map[string]string{}
	for _, m := range challengeMember.FindAllStringSubmatch(challenge, 10) {
		members[strings.ToLower(m[1])] = m[2]
	}
	service, err := url.Parse(members["realm"])
	switch {
	case err != nil || service.Hostname() == "" || service.Scheme != "http" && service.Scheme != "https":
		return nil, fail(stepAnswer, "correct the setting of the registry", "%s does not name its token service", server)
	case service.Scheme == "http" && scheme == "https":
		return nil, fail(stepAnswer, "correct the setting of the registry: its realm must begin with https://", "%s wants the credentials sent to %s without encryption", server, service.Host)
	}
	query := service.Query()
	if members["service"] != "" {
		query.Set("service", members["service"])
	}
	if scope != "" {
		query.Set("scope", scope)
	}
	service.RawQuery, service.User, service.Fragment, service.RawFragment = query.Encode(), nil, "", ""
	return service, nil
}

// use tries what the credentials may do in a repository.
func (r *registryCall) use(ctx context.Context, repo string) *failure {
	about := r.about
	about.resource, about.right = "the repository "+repo, "the permission to pull from the repository"
	a, f := r.p.get(ctx, with(at(r.root, repo, "tags", "list"), "n", "1"), r.prepare)
	if f != nil {
		return f
	}
	unknown := a.status == http.StatusNotFound && strings.Contains(string(a.body), "NAME_UNKNOWN")
	if !r.p.write() || !unknown { // a push creates the repository
		if a.status == http.StatusUnauthorized {
			a.status = http.StatusForbidden // the token is valid, its scope is too small
		}
		if f := explainStatus(a, about); f != nil {
			return f
		}
		r.p.report.ok(stepPermission, "the delegate may pull from the repository %s", repo)
	}
	if !r.p.write() {
		return nil
	}
	return r.push(ctx, repo, about)
}

// push begins an upload and cancels it.
func (r *registryCall) push(ctx context.Context, repo string, about subject) *failure {
	about.right = "the permission to push to the repository"
	start := at(r.root, repo, "blobs", "uploads")
	start.Path, start.RawPath = start.Path+"/", ""
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, start.String(), http.NoBody)
	if err != nil {
		return fail(stepAddress, "correct the option repository", "the option repository is not the name of a repository")
	}
	if r.prepare != nil {
		r.prepare(req)
	}
	a, f := r.p.send(ctx, req)
	if f != nil {
		return f
	}
	if a.status == http.StatusUnauthorized {
		a.status = http.StatusForbidden
	}
	if f := explainStatus(a, about); f != nil {
		return f
	}
	if upload, err := url.Parse(a.header.Get("Location")); err == nil {
		upload = start.ResolveReference(upload)
		if upload.Host == start.Host && upload.Scheme == start.Scheme {
			if req, err := http.NewRequestWithContext(ctx, http.MethodDelete, upload.String(), http.NoBody); err == nil {
				if r.prepare != nil {
					r.prepare(req)
				}
				_, _ = r.p.send(ctx, req) // otherwise the registry removes it later
			}
		}
	}
	r.p.report.ok(stepPermission, "the delegate may push to the repository %s", repo)
	return nil
}
