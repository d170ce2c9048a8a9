package connector

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/task/connector/internal/sshtest"
)

var quiet = log.New(io.Discard, "", 0)

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }

// Each way in which a web service can be broken has its own step and message (rule G3).
func TestEachWayToBeBrokenHasItsOwnMessage(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "The CA of a test"), newAuthority(t, "Another CA")
	good := ca.serve(&x509.Certificate{}, ok)
	elsewhere := ca.serve(&x509.Certificate{}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://sign-in.example/?from="+fakeToken, http.StatusFound)
	})
	status := func(status int, header, body string) string {
		return ca.serve(&x509.Certificate{}, func(w http.ResponseWriter, _ *http.Request) {
			if name, value, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(name, value)
			}
			answerJSON(w, status, body)
		}).URL
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := "https://" + l.Addr().String()
	require.NoError(t, l.Close())

	for name, c := range map[string]struct{ address, step, message, remedy string }{
		"wrong name":       {"https://nosuch.invalid", stepName, "the name nosuch.invalid does not exist", "correct the name"},
		"closed port":      {closed, stepConnection, "refuses connections: no program listens", "check the port"},
		"expired":          {ca.serve(&x509.Certificate{NotAfter: time.Now().Add(-time.Hour)}, ok).URL, stepTLS, "has expired at 20", "renew the certificate"},
		"not yet valid":    {ca.serve(&x509.Certificate{NotBefore: time.Now().Add(time.Hour)}, ok).URL, stepTLS, "is valid only from 20", "check the clock"},
		"wrong CA":         {other.serve(&x509.Certificate{}, ok).URL, stepTLS, "is signed by a CA that the delegate does not know (CN=Another CA)", "option ca"},
		"wrong host":       {ca.serve(&x509.Certificate{DNSNames: []string{"git.example"}}, ok).URL, stepTLS, "is not for 127.0.0.1", "use a name of the certificate"},
		"no TLS":           {strings.Replace(serveHTTP(t, ok).URL, "http:", "https:", 1), stepTLS, "does not speak TLS on this port", "use http://"},
		"TLS only":         {strings.Replace(good.URL, "https:", "http:", 1), stepAnswer, "answers 400", "check the kind and the address"},
		"401":              {status(401, "", `{"message":"Bad credentials"}`), stepAuthentication, "rejects the token (401): Bad credentials", "check that the secret has the current value"},
		"403":              {status(403, "", `{"message":"no"}`), stepPermission, "accepts the token but does not permit the request (403): no", "give it"},
		"rate limit":       {status(429, "Retry-After: 90", `{}`), stepAnswer, "limits the number of requests (429), try again after 1m30s", "wait"},
		"rate limit, 403":  {status(403, "X-RateLimit-Remaining: 0", `{}`), stepAnswer, "limits the number of requests (403)", "wait"},
		"elsewhere":        {elsewhere.URL, stepAnswer, "redirects to https://sign-in.example, and the test does not follow", "write the new address"},
		"full disk":        {status(507, "", `{}`), stepAnswer, "has no free space (507)", "free space on the server"},
		"full disk, 500":   {status(500, "", `{"errors":[{"code":"UNKNOWN","message":"write /data: no space left on device"}]}`), stepAnswer, "has no free space (500): UNKNOWN write /data", "free space on the server"},
		"error":            {status(502, "", `<html>`), stepAnswer, "has an error of its own (502)", "look into the logs"},
		"metadata":         {"http://169.254.169.254/latest", stepConnection, "an address of this machine's link or of the metadata service", "use the address of the system"},
		"metadata, mapped": {"http://[::ffff:169.254.169.254]/latest", stepConnection, "metadata service", "use the address of the system"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := failed(t, try(t, connector{Kind: kindHTTP, Address: c.address, Secrets: map[string]string{secretToken: fakeToken}, Options: map[string]string{optionCA: ca.pem}}))
			assert.Equal(t, c.step, s.Name, "%+v", s)
			assert.Contains(t, s.Message, c.message)
			assert.Contains(t, s.Remedy, c.remedy)
		})
	}
	r := try(t, connector{Kind: kindHTTP, Address: good.URL, Options: map[string]string{optionCA: ca.pem}})
	assert.Equal(t, "connection tls answer", steps(t, r))
	soon := ca.serve(&x509.Certificate{Subject: pkix.Name{CommonName: "soon"}, NotAfter: time.Now().Add(time.Hour)}, ok)
	r = try(t, connector{Kind: kindHTTP, Address: soon.URL, Options: map[string]string{optionCA: ca.pem}})
	require.True(t, r.OK)
	assert.Contains(t, r.Steps[1].Remedy, "it ends soon")
}

// A test that takes too long names the part that took the time (rule G3).
func TestASlowServerIsNamedWithThePartThatIsSlow(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts and says nothing
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	stop := make(chan struct{})
	hanging := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	trickle := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(stop) })
	var all sync.WaitGroup
	for address, want := range map[string][2]string{
		"https://" + silent.Addr().String(): {stepTLS, "the TLS handshake with " + silent.Addr().String() + " does not end in time (the test had 3s)"},
		hanging.URL:                         {stepAnswer, "is connected but does not answer in time"},
		trickle.URL:                         {stepAnswer, "is connected but does not answer in time"},
		"ssh://git@" + silent.Addr().String() + "/acme/app": {stepHostKey, "the SSH handshake with 127.0.0.1 does not end in time"},
	} {
		all.Go(func() {
			c := connector{Kind: kindHTTP, Address: address}
			if strings.HasPrefix(address, "ssh") {
				_, key := sshtest.NewKey(t)
				c = connector{Kind: kindGit, Address: address, Secrets: map[string]string{secretKey: key}}
			}
			s := failed(t, tryWith(t, &tester{base: &http.Transport{}, resolver: emptyResolver(t)}, c, 3*time.Second))
			assert.Equal(t, want[0], s.Name)
			assert.Contains(t, s.Message, want[1])
		})
	}
	all.Wait()
}

// proxy connects to one server for all requests.
func proxy(t *testing.T, to string, status int) *url.URL {
	t.Helper()
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		target, err := new(net.Dialer).DialContext(r.Context(), "tcp", to)
		if !assert.NoError(t, err) {
			return
		}
		defer func() { _ = target.Close() }()
		w.WriteHeader(http.StatusOK)
		from, read, err := http.NewResponseController(w).Hijack() // the client may have sent its first bytes already
		if !assert.NoError(t, err) {
			return
		}
		defer func() { _ = from.Close() }()
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(target, read)
			_ = target.Close()
		})
		_, _ = io.Copy(from, target)
		_ = from.Close()
		both.Wait()
	})
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return u
}

// Tests take the proxy of the delegate, and name it if it is the cause (rule G3).
func TestTheProxyIsAPartOfTheTest(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "The CA of a test")
	server := ca.serve(&x509.Certificate{DNSNames: []string{"inside.example"}}, ok)
	c := connector{Kind: kindHTTP, Address: "https://inside.example", Options: map[string]string{optionCA: ca.pem}}
	through := func(u *url.URL) testResult {
		return tryWith(t, &tester{base: &http.Transport{Proxy: http.ProxyURL(u)}, resolver: emptyResolver(t)}, c, time.Minute)
	}
	assert.Equal(t, "proxy tls answer", steps(t, through(proxy(t, server.Listener.Addr().String(), http.StatusOK))))
	for status, want := range map[int]string{407: "requires credentials for inside.example", 403: "refuses a connection to inside.example", 502: "cannot connect to inside.example"} {
		s := failed(t, through(proxy(t, "", status)))
		assert.Equal(t, stepProxy, s.Name)
		assert.Contains(t, s.Message, fmt.Sprintf("%s:443 (%d)", want, status))
	}
	s := failed(t, through(&url.URL{Scheme: "http", Host: "nosuch.invalid:3128"}))
	assert.Equal(t, stepProxy, s.Name)
	assert.Contains(t, s.Message, "the name of the proxy, nosuch.invalid, cannot be resolved")
}

// A server that repeats the credentials of a request does not reveal them in the result (rules S3, G3).
func TestAServerThatEchoesCredentialsShowsNone(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		answerJSON(w, http.StatusUnauthorized, fmt.Sprintf(`{"message":%q}`, strings.Join([]string{r.Header.Get("Authorization"), user, password}, " ")))
	})
	for _, c := range []connector{
		{Kind: kindHTTP, Secrets: map[string]string{secretToken: fakeToken}},
		{Kind: kindHTTP, Secrets: map[string]string{secretUsername: "visibly-fake-user", secretPassword: fakeToken}},
		{Kind: kindGit, Secrets: map[string]string{secretToken: fakeToken}},
		{Kind: kindAzureRepos, Secrets: map[string]string{secretToken: fakeToken}},
		{Kind: kindS3, Secrets: map[string]string{secretAccessKey: "visibly-fake-access", secretSecretKey: fakeToken}, Options: map[string]string{optionBucket: "b"}},
	} {
		c.Address = s.URL
		assert.Contains(t, failed(t, try(t, c)).Message, "******", c.Kind) // try looks for the values
	}
}

// A connector with members that its kind does not have fails before anything is sent (rule G3).
func TestWrongMembersAreNamed(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]connector{
		`does not know the kind "svn"`:                     {Kind: "svn"},
		`have no secret "pasword"`:                         {Kind: kindHTTP, Secrets: map[string]string{"pasword": fakeToken}},
		`have no option "repo"`:                            {Kind: kindGit, Options: map[string]string{"repo": "x"}},
		`the option access is "admin"`:                     {Kind: kindGit, Options: map[string]string{optionAccess: "admin"}},
		"need an address":                                  {Kind: kindRegistry},
		"the address begins with ftp://":                   {Kind: kindHTTP, Address: "ftp://x"},
		"the address has a user, a query or a fragment":    {Kind: kindHTTP, Address: "https://user@x"},
		"the option ca has no certificate":                 {Kind: kindHTTP, Address: "https://x", Options: map[string]string{optionCA: "x"}},
		"need credentials":                                 {Kind: kindGitHub},
		"need the option bucket":                           {Kind: kindS3},
		"the secret token has a line break":                {Kind: kindHTTP, Address: "https://x", Secrets: map[string]string{secretToken: fakeToken + "\n"}},
		"only one of access_key and secret_key":            {Kind: kindAWS, Secrets: map[string]string{secretAccessKey: "visibly-fake-access"}},
		"is not a private key for SSH":                     {Kind: kindGit, Address: "git@x:y", Secrets: map[string]string{secretKey: fakeToken}},
		"is not the key file of a service account":         {Kind: kindGCP, Secrets: map[string]string{secretKey: fakeToken}},
		"the address names no region":                      {Kind: kindECR, Address: "https://x", Secrets: map[string]string{secretAccessKey: "visibly-fake-access", secretSecretKey: fakeToken}},
		"client_cert and client_key are not a certificate": {Kind: kindKubernetes, Address: "https://x", Secrets: map[string]string{secretClientCert: fakeToken}},
	} {
		assert.Contains(t, failed(t, try(t, c)).Message, want)
	}
}
