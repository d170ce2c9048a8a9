package connector

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// api is a stand-in for a documented API: it answers these paths to requests with this header.
func api(t *testing.T, header, value string, answers map[string]string) *httptest.Server {
	t.Helper()
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, known := answers[r.URL.EscapedPath()]
		switch {
		case r.Header.Get(header) != value:
			answerJSON(w, http.StatusUnauthorized, `{"message":"Bad credentials"}`)
		case !known:
			answerJSON(w, http.StatusNotFound, `{"message":"Not Found"}`)
		default:
			answerJSON(w, http.StatusOK, body)
		}
	})
}

// The APIs of Git providers are called as they are documented: the user, the repository and the right to write (rule G3).
func TestForges(t *testing.T) {
	t.Parallel()
	basic := func(user string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+fakeToken))
	}
	for kind, c := range map[string]struct {
		authorization string
		answers       map[string]string
		who           string
		write         bool // whether the API has the permission to write
	}{
		kindGitHub: {"Bearer " + fakeToken, map[string]string{
			"/api/v3/user": `{"login":"bot"}`, "/api/v3/repos/acme/app": `{"permissions":{"push":true,"pull":true}}`, "/api/v3/repos/acme/other": `{"permissions":{"push":false,"pull":true}}`,
		}, "bot", true},
		kindGitLab: {"Bearer " + fakeToken, map[string]string{
			"/api/v4/user": `{"username":"bot"}`, "/api/v4/projects/acme%2Fapp": `{"permissions":{"project_access":{"access_level":40},"group_access":null}}`,
			"/api/v4/projects/acme%2Fother": `{"permissions":{"project_access":null,"group_access":{"access_level":20}}}`,
		}, "bot", true},
		kindGitea: {"token " + fakeToken, map[string]string{
			"/api/v1/user": `{"login":"bot"}`, "/api/v1/repos/acme/app": `{"permissions":{"push":true}}`, "/api/v1/repos/acme/other": `{"permissions":{"push":false}}`,
		}, "bot", true},
		kindBitbucket: {"Bearer " + fakeToken, map[string]string{
			"/rest/api/1.0/profile/recent/repos": `{"username":"bot"}`, "/rest/api/1.0/projects/acme/repos/app": `{}`,
		}, "bot", false},
		kindAzureRepos: {basic(""), map[string]string{
			"/_apis/connectionData": `{"authenticatedUser":{"providerDisplayName":"The bot"}}`, "/acme/_apis/git/repositories/app": `{}`,
		}, "The bot", false},
	} {
		s := api(t, "Authorization", c.authorization, c.answers)
		with := func(token, repo string) connector {
			return connector{Kind: kind, Address: s.URL, Secrets: map[string]string{secretToken: token}, Options: map[string]string{optionRepository: repo, optionAccess: "write"}}
		}
		r := try(t, with(fakeToken, "acme/app"))
		assert.Equal(t, "connection authentication permission", steps(t, r), kind)
		assert.Contains(t, r.Steps[1].Message, "it belongs to "+c.who, kind)
		assert.Equal(t, c.write, strings.Contains(r.Steps[2].Message, "the token may write to"), "%s: %+v", kind, r.Steps[2])
		f := failed(t, try(t, with("visibly-another-token", "acme/app")))
		assert.Equal(t, stepAuthentication, f.Name, kind)
		f = failed(t, try(t, with(fakeToken, "acme/hidden")))
		assert.Equal(t, stepPermission, f.Name, kind)
		assert.Contains(t, f.Message, "does not know the repository acme/hidden, or hides it", kind)
		if c.write {
			f = failed(t, try(t, with(fakeToken, "acme/other")))
			assert.Contains(t, f.Message, "may read the repository acme/other but not write to it", kind)
		}
	}
	// Azure answers wrong tokens with the page of a sign-in.
	page := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNonAuthoritativeInfo)
		_, _ = w.Write([]byte("<html>sign in"))
	})
	f := failed(t, try(t, connector{Kind: kindAzureRepos, Address: page.URL, Secrets: map[string]string{secretToken: fakeToken}}))
	assert.Contains(t, f.Message, "may be a sign-in page")
}

// Registries with a token service: the service, the scopes and the token are used as documented (rule G3).
func TestRegistriesWithATokenService(t *testing.T) {
	t.Parallel()
	const issued = "visibly-fake-issued-token"
	service := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		scope := r.URL.Query().Get("scope")
		switch {
		case password != "" && password != fakeToken:
			answerJSON(w, http.StatusUnauthorized, `{"details":"incorrect username or password"}`)
		case strings.Contains(scope, "push") && user != "writer":
			answerJSON(w, http.StatusOK, `{"token":"`+issued+`-read"}`)
		default:
			answerJSON(w, http.StatusOK, `{"access_token":"`+issued+`"}`)
		}
	})
	s := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !strings.HasPrefix(token, issued), r.Method == http.MethodPost && token != issued:
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+service.URL+`/token",service="registry.test"`)
			answerJSON(w, http.StatusUnauthorized, `{"errors":[{"code":"UNAUTHORIZED","message":"you sent `+token+`"}]}`)
		case r.Method == http.MethodPost:
			w.Header().Set("Location", r.URL.Path+"upload")
			w.WriteHeader(http.StatusAccepted)
		default:
			answerJSON(w, http.StatusOK, `{"tags":[]}`)
		}
	})
	with := func(kind, user, password, access string) connector {
		return connector{Kind: kind, Address: s.URL, Secrets: map[string]string{secretPassword: password}, Options: map[string]string{
			optionUsername: user, optionRepository: "team/app", optionAccess: access,
		}}
	}
	for _, kind := range []string{kindRegistry, kindDockerHub, kindHarbor, kindArtifactory, kindACR, kindGAR} {
		assert.Equal(t, "connection authentication permission", steps(t, try(t, with(kind, "writer", fakeToken, "write"))), kind)
	}
	f := failed(t, try(t, with(kindRegistry, "reader", fakeToken, "write")))
	assert.Equal(t, stepPermission, f.Name)
	assert.Contains(t, f.Message, "does not permit the repository team/app (403)")
	assert.NotContains(t, f.Message, issued)
	f = failed(t, try(t, with(kindRegistry, "reader", "visibly-another-password", "read")))
	assert.Equal(t, stepAuthentication, f.Name)
	assert.Contains(t, f.Message, "the token service "+strings.TrimPrefix(service.URL, "http://")+" rejects the password of reader (401)")

	// ECR: the password of the registry comes from the API of AWS.
	ecr := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=visibly-fake-access/") {
			answerJSON(w, http.StatusBadRequest, `{"__type":"UnrecognizedClientException","message":"The security token is invalid."}`)
			return
		}
		answerJSON(w, http.StatusOK, `{"authorizationData":[{"authorizationToken":"`+base64.StdEncoding.EncodeToString([]byte("AWS:"+fakeToken))+`"}]}`)
	})
	c := connector{Kind: kindECR, Address: s.URL, Secrets: map[string]string{secretAccessKey: "visibly-fake-access", secretSecretKey: "visibly-fake-secret"}, Options: map[string]string{
		optionRegion: "eu-west-1", optionRepository: "team/app", "api": ecr.URL,
	}}
	assert.True(t, try(t, c).OK)
	c.Secrets[secretAccessKey] = "visibly-other-access"
	assert.Contains(t, failed(t, try(t, c)).Message, "rejects the access key (UnrecognizedClientException)")
	// The service must not get credentials without encryption if the registry has it.
	ca := newAuthority(t, "The CA of a test")
	secure := ca.serve(&x509.Certificate{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+service.URL+`/token"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	c = connector{Kind: kindRegistry, Address: secure.URL, Secrets: map[string]string{secretToken: fakeToken}, Options: map[string]string{optionCA: ca.pem}}
	assert.Contains(t, failed(t, try(t, c)).Message, "without encryption")
}

// The clouds name the owner of the credentials (rule G3).
func TestClouds(t *testing.T) {
	t.Parallel()
	sts := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		_ = r.ParseForm()
		switch authorization := r.Header.Get("Authorization"); {
		case !strings.HasPrefix(authorization, "AWS4-HMAC-SHA256 Credential=visibly-fake-access/") || !strings.Contains(authorization, "/eu-west-1/sts/aws4_request"):
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`<ErrorResponse><Error><Code>InvalidClientTokenId</Code></Error></ErrorResponse>`))
		case r.PostForm.Get("Action") == "AssumeRole" && r.PostForm.Get("ExternalId") != "ci":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>`))
		default:
			_, _ = w.Write([]byte(`<GetCallerIdentityResponse><Arn>arn:aws:iam::1:user/bot</Arn></GetCallerIdentityResponse>`))
		}
	})
	c := connector{Kind: kindAWS, Address: sts.URL, Secrets: map[string]string{secretAccessKey: "visibly-fake-access", secretSecretKey: fakeToken}, Options: map[string]string{
		optionRegion: "eu-west-1", optionAssumeRole: "arn:aws:iam::1:role/ci", optionExternalID: "ci",
	}}
	r := try(t, c)
	assert.Equal(t, "connection authentication permission", steps(t, r))
	assert.Contains(t, r.Steps[1].Message, "it is arn:aws:iam::1:user/bot")
	delete(c.Options, optionExternalID)
	f := failed(t, try(t, c))
	assert.Contains(t, f.Message, "does not permit the role arn:aws:iam::1:role/ci (403)")
	c.Secrets[secretAccessKey] = "visibly-other-access"
	assert.Equal(t, stepAuthentication, failed(t, try(t, c)).Name)

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	var revoked atomic.Bool
	google := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		switch {
		case r.URL.Path == "/token" && !revoked.Load() && strings.Count(r.PostForm.Get("assertion"), ".") == 2:
			answerJSON(w, http.StatusOK, `{"access_token":"`+fakeToken+`"}`)
		case r.URL.Path == "/token":
			answerJSON(w, http.StatusBadRequest, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
		case r.URL.Path == "/v1/projects/ci-1:testIamPermissions" && r.Header.Get("Authorization") == "Bearer "+fakeToken:
			answerJSON(w, http.StatusOK, `{"permissions":["resourcemanager.projects.get"]}`)
		default:
			answerJSON(w, http.StatusOK, `{}`)
		}
	})
	file, err := json.Marshal(map[string]string{
		"client_email": "bot@ci-1.example", "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "project_id": "ci-1", "token_uri": google.URL + "/token",
	})
	require.NoError(t, err)
	c = connector{Kind: kindGCP, Address: google.URL, Secrets: map[string]string{secretKey: string(file)}, Options: map[string]string{}}
	r = try(t, c)
	assert.Equal(t, "connection authentication permission", steps(t, r))
	assert.Contains(t, r.Steps[1].Message, "accepts the key of bot@ci-1.example")
	c.Options[optionProject] = "other"
	assert.Contains(t, failed(t, try(t, c)).Message, "no permission resourcemanager.projects.get in the project other")
	revoked.Store(true)
	assert.Contains(t, failed(t, try(t, c)).Message, "rejects the key of bot@ci-1.example (400): Invalid JWT Signature.")

	azure := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		switch {
		case r.URL.Path == "/tenant-1/oauth2/v2.0/token" && r.PostForm.Get("client_secret") == fakeToken && r.PostForm.Get("client_id") == "app-1":
			answerJSON(w, http.StatusOK, `{"access_token":"visibly-fake-issued-token"}`)
		case r.URL.Path == "/subscriptions" && r.Header.Get("Authorization") == "Bearer visibly-fake-issued-token":
			answerJSON(w, http.StatusOK, `{"value":[{"displayName":"CI","subscriptionId":"sub-1"}]}`)
		default:
			answerJSON(w, http.StatusUnauthorized, `{"error":"invalid_client","error_description":"AADSTS7000215"}`)
		}
	})
	c = connector{Kind: kindAzure, Address: azure.URL, Secrets: map[string]string{secretPassword: fakeToken}, Options: map[string]string{optionTenant: "tenant-1", optionClient: "app-1", "login": azure.URL}}
	r = try(t, c)
	assert.Equal(t, "connection authentication permission", steps(t, r))
	assert.Contains(t, r.Steps[2].Message, "sees subscriptions (1), the first is CI (sub-1)")
	c.Secrets[secretPassword] = "visibly-another-secret"
	f = failed(t, try(t, c))
	assert.Contains(t, f.Message, "rejects the principal app-1 (401): AADSTS7000215")
}
