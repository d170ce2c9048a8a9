package kubernetes_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/secrets"
	"github.com/delegate-io/dlite/secrets/kubernetes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	hush  = "hush-hush"
	token = "not-a-real-token"
)

// cluster serves Secret objects with base64 values, and Status objects for errors, as
// the API reference describes them. The tests of the Kubernetes driver use a real API
// server.
func cluster(t *testing.T) *httptest.Server {
	t.Helper()
	status := func(w http.ResponseWriter, code int, reason, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "message": message, "reason": reason, "code": code,
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/secrets/{name}", func(w http.ResponseWriter, r *http.Request) {
		ns, name := r.PathValue("ns"), r.PathValue("name")
		data := map[string]string{}
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			status(w, 401, "Unauthorized", "Unauthorized")
			return
		case ns == "kube-system":
			status(w, 403, "Forbidden", fmt.Sprintf(`secrets %q is forbidden: User "ci" cannot get resource "secrets" in API group "" in the namespace %q`, name, ns))
			return
		case name == "database":
			data["password"], data["tls.crt"] = hush, "line1\nline2\n"
		case name == "single":
			data["any"] = "\xff\x00binary"
		case name == "garbage":
			_, _ = io.WriteString(w, "<html>"+hush)
			return
		case name == "page":
			w.WriteHeader(500)
			_, _ = io.WriteString(w, "<html>"+hush)
			return
		case name == "hang":
			<-r.Context().Done()
			return
		default:
			status(w, 404, "NotFound", fmt.Sprintf("secrets %q not found", name))
			return
		}
		for k, v := range data {
			data[k] = base64.StdEncoding.EncodeToString([]byte(v))
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "Secret", "apiVersion": "v1", "type": "Opaque", "metadata": map[string]any{"name": name, "namespace": ns}, "data": data,
		})
	})
	srv := httptest.NewTLSServer(mux) // the client sends its token only over TLS
	t.Cleanup(srv.Close)
	return srv
}

func open(t *testing.T, srv *httptest.Server, token string, namespaces ...string) *kubernetes.Provider {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: good, context: {cluster: c, user: u}}]
current-context: none
`, srv.URL, base64.StdEncoding.EncodeToString(ca), token), 0o600))
	p, err := kubernetes.New(kubernetes.Config{Kubeconfig: file, Context: "good", Namespaces: namespaces})
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

// Rule S1.
func TestFetchReturnsKeysOfSecrets(t *testing.T) {
	t.Parallel()
	p := open(t, cluster(t), token)
	for ref, want := range map[string]string{
		"k8s://ci/database#password": hush, "k8s://ci/database#tls.crt": "line1\nline2\n", "k8s://other/single": "\xff\x00binary",
	} {
		v, err := fetch(t.Context(), t, p, ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, v, ref)
	}
}

func TestErrorsNameTheReasonAndShowNoValue(t *testing.T) {
	t.Parallel()
	srv := cluster(t)
	p := open(t, srv, token)
	for ref, want := range map[string]string{
		"k8s://ci/none#a": "there is no such secret", "k8s://ci/database#none": `no key "none"`, "k8s://ci/database": "has 2 keys",
		"k8s://kube-system/x#a": `the cluster answered 403: secrets "x" is forbidden`, "k8s://ci": "must be of the form", "k8s://ci/a/b#c": "must be of the form",
		"k8s:///a#c": "must be of the form", "k8s://ci/a?x=1#c": "must be of the form", "k8s://ci/garbage#a": "the cluster's answer cannot be read",
		"k8s://ci/page#a": "the cluster answered 500",
	} {
		_, err := fetch(t.Context(), t, p, ref)
		require.ErrorContains(t, err, want, ref)
		assert.NotContains(t, err.Error(), hush, ref)
	}
	_, err := fetch(t.Context(), t, open(t, srv, "another"), "k8s://ci/database#password")
	require.ErrorContains(t, err, "the cluster answered 401")
	_, err = fetch(t.Context(), t, open(t, srv, token, "ci", "cd"), "k8s://kube-system/database#password")
	require.ErrorContains(t, err, `tasks may not refer to the namespace "kube-system"`)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = fetch(ctx, t, p, "k8s://ci/hang#a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestNewRefusesInvalidConfigurations(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := kubernetes.New(kubernetes.Config{})
	require.ErrorContains(t, err, "kubernetes: ")
	_, err = kubernetes.New(kubernetes.Config{Kubeconfig: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "kubernetes: ")
}
