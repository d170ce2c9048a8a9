package connector

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/task"
)

// Limits of the time of a test.
const (
	defaultTimeout = 20 * time.Second
	maxTimeout     = 5 * time.Minute
)

// tester has the network of the delegate.
type tester struct {
	base     *http.Transport
	resolver *net.Resolver
}

func (t *tester) handler() task.Handler {
	return task.HandlerFunc(func(ctx context.Context, req *task.Request[testRequest]) (testResult, error) {
		set := secrets.FromContext(ctx)
		if set == nil {
			set = secrets.NewSet(secrets.Config{})
		}
		timeout := cmp.Or(time.Duration(min(max(req.Data.TimeoutMS, 0), maxTimeout.Milliseconds()))*time.Millisecond, defaultTimeout)
		return t.test(ctx, &req.Data.Connector, set, timeout), nil
	})
}

// test tests a connector.
func (t *tester) test(ctx context.Context, c *connector, set *secrets.Set, timeout time.Duration) testResult {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	set.Add(slices.Collect(maps.Values(c.Secrets))...)
	k, f := check(c)
	if f != nil {
		return newReport(set).result(f)
	}
	p, f := newProbe(c, set, t, timeout)
	if f != nil {
		return newReport(set).result(f)
	}
	defer p.close()
	return p.report.result(k.test(ctx, p))
}

// kind describes the connectors of a kind.
type kind struct {
	address string // the default
	secrets []string
	options []string
	test    func(context.Context, *probe) *failure
}

var (
	login       = []string{secretToken, secretUsername, secretPassword}
	keys        = []string{secretAccessKey, secretSecretKey, secretSessionToken}
	forgeFields = []string{optionRepository, optionAccess}
)

// kinds returns the description of a kind.
func kinds(name string) (kind, bool) {
	registry := func(address string) kind {
		return kind{address, login, []string{optionUsername, optionRepository, optionAccess}, testRegistry}
	}
	forge := func(address string, f forge) kind {
		return kind{address, login, append([]string{optionUsername}, forgeFields...), func(ctx context.Context, p *probe) *failure { return testForge(ctx, p, f) }}
	}
	all := map[string]kind{
		kindGit:         {"", append([]string{secretKey}, login...), []string{optionUsername, optionRepository, optionAccess, optionKnownHosts}, testGit},
		kindGitHub:      forge("https://github.com", github{}),
		kindGitLab:      forge("https://gitlab.com", gitlab{}),
		kindBitbucket:   forge("https://bitbucket.org", bitbucket{}),
		kindGitea:       forge("", gitea{}),
		kindAzureRepos:  forge("", azureRepos{}),
		kindRegistry:    registry(""),
		kindDockerHub:   registry("https://registry-1.docker.io"),
		kindHarbor:      registry(""),
		kindArtifactory: registry(""),
		kindACR:         registry(""),
		kindGAR:         {"", append([]string{secretKey}, login...), []string{optionUsername, optionRepository, optionAccess}, testRegistry},
		kindECR:         {"", keys, []string{optionRegion, optionRepository, optionAccess, "api"}, testECR},
		kindAWS:         {"", keys, []string{optionRegion, optionAssumeRole, optionExternalID}, testAWS},
		kindGCP:         {"https://cloudresourcemanager.googleapis.com", []string{secretKey}, []string{optionProject, optionAccess}, testGCP},
		kindAzure:       {"https://management.azure.com", []string{secretPassword}, []string{optionTenant, optionClient, "login"}, testAzure},
		kindKubernetes:  {"", []string{secretToken}, []string{optionNamespace, optionAccess, optionResource}, testKubernetes},
		kindVault:       {"", []string{secretToken, secretUsername, secretPassword}, []string{optionNamespace, optionPath, optionAccess}, testVault},
		kindS3:          {"", keys, []string{optionRegion, optionBucket, optionPrefix, optionPathStyle, optionAccess}, testS3},
		kindHTTP:        {"", login, []string{optionUsername}, testHTTP},
	}
	k, ok := all[name]
	k.secrets = append(slices.Clone(k.secrets), secretClientCert, secretClientKey)
	k.options = append(slices.Clone(k.options), optionCA)
	return k, ok
}

// check completes a connector and checks its members.
func check(c *connector) (kind, *failure) {
	k, ok := kinds(c.Kind)
	if !ok {
		return k, fail(stepAddress, "use one of the kinds of docs/connectors.md; an older delegate knows fewer", "this delegate does not know the kind %q", c.Kind)
	}
	c.Address = cmp.Or(c.Address, k.address)
	if f := checkNames("secret", c.Kind, c.Secrets, k.secrets); f != nil {
		return k, f
	}
	if f := checkNames("option", c.Kind, c.Options, k.options); f != nil {
		return k, f
	}
	if a := c.Options[optionAccess]; a != "" && a != "read" && a != "write" {
		return k, fail(stepAddress, "write read or write", "the option access is %q", a)
	}
	for name, v := range c.Secrets {
		if v == "" {
			return k, fail("secrets", "check the secret that the reference names", "the secret %s is empty", name)
		}
		if name != secretKey && name != secretClientCert && name != secretClientKey && strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return k, fail("secrets", "store it again without a line break; many editors and \"echo\" add one", "the secret %s has a line break or another control character", name)
		}
	}
	return k, nil
}

func checkNames(what, kind string, got map[string]string, known []string) *failure {
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !slices.Contains(known, name) {
			slices.Sort(known)
			return fail(stepAddress, "use "+strings.Join(known, ", "), "connectors of the kind %s have no %s %q", kind, what, name)
		}
	}
	return nil
}

// base returns the address as a URL without a slash at its end.
func (p *probe) base() (*url.URL, *failure) {
	text := p.c.Address
	if text == "" {
		return nil, fail(stepAddress, "write it as https://HOST", "connectors of the kind %s need an address", p.c.Kind)
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Hostname() == "":
		return nil, fail(stepAddress, "write it as https://HOST or https://HOST/PATH", "the address is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fail(stepAddress, "begin it with https://", "the address begins with %s://", u.Scheme)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fail(stepAddress, "put credentials into secrets of the connector", "the address has a user, a query or a fragment")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u, nil
}

// secret returns a secret, and option an option.
func (p *probe) secret(name string) string { return p.c.Secrets[name] }
func (p *probe) option(name string) string { return p.c.Options[name] }

// login returns the user name and the password or token. Kind is a word for messages; it is "" without credentials.
func (p *probe) login() (user, password, kind string) {
	user = cmp.Or(p.secret(secretUsername), p.option(optionUsername))
	switch {
	case p.secret(secretToken) != "":
		return user, p.secret(secretToken), "the token"
	case p.secret(secretPassword) != "":
		return user, p.secret(secretPassword), "the password of " + cmp.Or(p.option(optionUsername), "the user")
	case p.secret(secretKey) != "":
		return user, p.secret(secretKey), "the key"
	}
	return user, "", ""
}

// get sends a GET request that prepare completes.
func (p *probe) get(ctx context.Context, u *url.URL, prepare func(*http.Request)) (*answer, *failure) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fail(stepAddress, "correct the address of the connector", "the address is not a URL")
	}
	if prepare != nil {
		prepare(req)
	}
	return p.send(ctx, req)
}

// at returns the URL of a path below u. The elements are escaped.
func at(u *url.URL, elements ...string) *url.URL {
	path := strings.TrimRight(u.EscapedPath(), "/")
	for _, e := range elements {
		for i, part := range strings.Split(e, "/") {
			if i > 0 || part != "" {
				path += "/" + url.PathEscape(part)
			}
		}
	}
	next := *u
	next.RawPath = path
	next.Path, _ = url.PathUnescape(path)
	return &next
}

// with returns a URL with a query.
func with(u *url.URL, query ...string) *url.URL {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	next := *u
	next.RawQuery = q.Encode()
	return &next
}

// write reports whether the test includes the permission to write.
func (p *probe) write() bool { return p.option(optionAccess) == "write" }
