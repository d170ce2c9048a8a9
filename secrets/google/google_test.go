package google_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/google"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hush  = "hush-hush"
	token = "not-a-real-access-token"
)

// service returns the address of a service and a credentials file for it. The service
// answers as the REST reference of Secret Manager and the OAuth documentation for
// service accounts describe.
func service(t *testing.T) (address, credentials string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		var claims struct {
			jwt.Claims
			Scope string `json:"scope"`
		}
		parsed, err := jwt.ParseSigned(r.FormValue("assertion"), []jose.SignatureAlgorithm{jose.RS256})
		w.Header().Set("Content-Type", "application/json")
		if err != nil || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || parsed.Claims(&key.PublicKey, &claims) != nil ||
			claims.Issuer != "ci@example.test" || !claims.Audience.Contains(srv.URL+"/token") || !strings.HasSuffix(claims.Scope, "/auth/cloud-platform") ||
			claims.Validate(jwt.Expected{Time: time.Now()}) != nil {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"`+hush+`"}`)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"`+token+`","token_type":"Bearer","expires_in":3600}`)
	})
	mux.HandleFunc("GET /v1/projects/{project}/secrets/{secret}/versions/{version}", func(w http.ResponseWriter, r *http.Request) {
		fail := func(code int, status, message string) {
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "status": status, "message": message}})
		}
		version, access := strings.CutSuffix(r.PathValue("version"), ":access")
		var data string
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			fail(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
			return
		case !access || r.PathValue("project") != "p-1":
			fail(403, "PERMISSION_DENIED", "Permission 'secretmanager.versions.access' denied")
			return
		}
		sum := func(s string) string {
			return strconv.FormatUint(uint64(crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli))), 10)
		}
		switch r.PathValue("secret") {
		case "database":
			data = `{"password":"` + hush + `","version":"` + version + `"}`
		case "binary":
			data = "\xff\x00binary"
		case "damaged":
			_ = json.NewEncoder(w).Encode(map[string]any{"payload": map[string]any{"data": []byte(hush), "dataCrc32c": sum("else")}})
			return
		case "garbage":
			_, _ = io.WriteString(w, `{"payload":{"data":"`+hush)
			return
		case "page":
			w.WriteHeader(502)
			_, _ = io.WriteString(w, hush)
			return
		case "elsewhere":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
			return
		case "hang":
			<-r.Context().Done()
			return
		default:
			fail(404, "NOT_FOUND", "Secret not found")
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "n", "payload": map[string]any{"data": []byte(data), "dataCrc32c": sum(data)}})
	})
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	file, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "ci@example.test", "token_uri": srv.URL + "/token", "private_key_id": "k",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
	})
	require.NoError(t, err)
	credentials = filepath.Join(t.TempDir(), "key.json")
	require.NoError(t, os.WriteFile(credentials, file, 0o600))
	return srv.URL, credentials
}

func open(t *testing.T, address, credentials string) *google.Provider {
	t.Helper()
	p, err := google.New(t.Context(), google.Config{Endpoint: address, CredentialsFile: credentials})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func fetch(ctx context.Context, t *testing.T, p secrets.Provider, ref string) (string, error) {
	t.Helper()
	u, err := url.Parse(ref)
	require.NoError(t, err)
	return p.Fetch(ctx, u)
}

// Rule S1. The service checks the login of the service account.
func TestFetchReturnsSecrets(t *testing.T) {
	t.Parallel()
	address, credentials := service(t)
	p := open(t, address, credentials)
	set := &secrets.Set{}
	for ref, want := range map[string]string{
		"gcp-sm://p-1/database#password": hush, "gcp-sm://p-1/database#version": "latest", "gcp-sm://p-1/database?version=7#version": "7",
		"gcp-sm://p-1/binary": "\xff\x00binary",
	} {
		v, err := fetch(secrets.NewContext(t.Context(), set), t, p, ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, v, ref)
	}
	assert.Equal(t, secrets.Replacement, set.Mask(token), "the token is a secret of the task")
}

func TestErrorsNameTheReasonAndShowNoValue(t *testing.T) {
	t.Parallel()
	address, credentials := service(t)
	p := open(t, address, credentials)
	for ref, want := range map[string]string{
		"gcp-sm://p-1/none": "there is no such secret", "gcp-sm://p-1/database#none": `no field "none"`,
		"gcp-sm://p-2/database": "the service answered 403 PERMISSION_DENIED: Permission", "gcp-sm://p-1/damaged": "has a wrong checksum",
		"gcp-sm://p-1/garbage": "cannot be read", "gcp-sm://p-1/page": "the service answered 502", "gcp-sm://p-1/elsewhere": "the service answered 302",
		"gcp-sm://p-1": "must be of the form", "gcp-sm://p-1/a/b": "must be of the form", "gcp-sm://p-1/a?x=1": "one parameter, version",
		"gcp-sm://p-1/a?version=1%2F..": "must be of the form", "gcp-sm:///a": "must be of the form",
	} {
		_, err := fetch(t.Context(), t, p, ref)
		require.ErrorContains(t, err, want, ref)
		assert.NotContains(t, err.Error(), hush, ref)
		assert.NotContains(t, err.Error(), token, ref)
	}
	_, others := service(t) // the service does not know this key
	b, err := os.ReadFile(others)
	require.NoError(t, err)
	var file map[string]string
	require.NoError(t, json.Unmarshal(b, &file))
	file["token_uri"] = address + "/token"
	b, err = json.Marshal(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(others, b, 0o600))
	_, err = fetch(t.Context(), t, open(t, address, others), "gcp-sm://p-1/database")
	require.EqualError(t, err, "the login was refused: 400 invalid_grant")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = fetch(ctx, t, p, "gcp-sm://p-1/hang")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestNewDoesNotQuoteAnInvalidCredentialsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"type":%q}`, hush), 0o600))
	_, err := google.New(t.Context(), google.Config{CredentialsFile: file})
	require.ErrorContains(t, err, "is not the key of a service account")
	assert.NotContains(t, err.Error(), hush)
	_, err = google.New(t.Context(), google.Config{CredentialsFile: file + ".none"})
	require.ErrorIs(t, err, os.ErrNotExist)
}
