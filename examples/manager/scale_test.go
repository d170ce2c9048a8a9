package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/examples/internal/serving"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// certificate makes a certificate that signs itself, and writes it as NAME.crt and NAME.key.
func certificate(t *testing.T, dir, name string, subject string, hosts ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: subject}, DNSNames: hosts, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	plain, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: plain}), 0o600))
	return cert, key
}

// Only the API server of the cluster gets metrics: its certificate has the right authority and the right name. A renewed
// certificate of the server needs no restart.
func TestTheExternalMetricsNeedTheCertificateOfTheAPIServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificate(t, dir, "server", "first", "localhost")
	front, frontKey := certificate(t, dir, "front", "front-proxy-client")
	c := &serverCommand{External: externalMetricsOptions{
		Listen: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: front, Names: "front-proxy-client", Accounts: "ci=a",
	}}
	p := start(t, c, map[string]string{"a": fakeSecret}, nil)
	url := strings.TrimSpace(strings.TrimPrefix(p.printed(), "external metrics at ")) + "/apis/external.metrics.k8s.io/v1beta1"
	get := func(certificates ...tls.Certificate) (int, string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}} //nolint:gosec // the test looks at the certificate
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return 0, "", err
		}
		defer func() { _ = resp.Body.Close() }()
		return resp.StatusCode, resp.TLS.PeerCertificates[0].Subject.CommonName, nil
	}
	right, err := tls.LoadX509KeyPair(front, frontKey)
	require.NoError(t, err)
	status, name, err := get(right)
	require.NoError(t, err)
	assert.Equal(t, 200, status)
	assert.Equal(t, "first", name)

	_, _, err = get()
	require.Error(t, err, "no certificate")
	otherCert, otherKey := certificate(t, dir, "other", "front-proxy-client")
	wrong, err := tls.LoadX509KeyPair(otherCert, otherKey)
	require.NoError(t, err)
	_, _, err = get(wrong)
	require.Error(t, err, "of another authority")
	certificate(t, dir, "front", "somebody")
	unnamed, err := tls.LoadX509KeyPair(front, frontKey)
	require.NoError(t, err)
	_, _, err = get(unnamed)
	require.Error(t, err, "of the authority, with another name")

	certificate(t, dir, "server", "second", "localhost")
	front, frontKey = certificate(t, dir, "front", "front-proxy-client")
	right, err = tls.LoadX509KeyPair(front, frontKey)
	require.NoError(t, err)
	_, name, err = get(right)
	require.NoError(t, err)
	assert.Equal(t, "second", name)
	require.NoError(t, p.end())
}

func TestTheExternalMetricsNameAWrongSetting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificate(t, dir, "server", "x")
	all := externalMetricsOptions{Listen: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: cert, Names: "x", Accounts: "ci=a"}
	require.NoError(t, all.check())
	for want, change := range map[string]func(*externalMetricsOptions){
		"EXTERNAL_METRICS_LISTEN is missing":        func(o *externalMetricsOptions) { o.Listen = "" },
		"EXTERNAL_METRICS_CERT_FILE is missing":     func(o *externalMetricsOptions) { o.Cert = "" },
		"EXTERNAL_METRICS_CLIENT_NAMES is missing":  func(o *externalMetricsOptions) { o.Names = "" },
		"has no certificate in PEM":                 func(o *externalMetricsOptions) { o.ClientCA = key },
		"each entry must be of the form namespace=": func(o *externalMetricsOptions) { o.Accounts = "ci=a,ci=b" },
	} {
		o := all
		change(&o)
		require.ErrorContains(t, o.check(), want)
	}
	ctx, out := t.Context(), make(writes, 10)
	c := &serverCommand{External: all}
	c.External.Accounts, c.Listen, c.Store, c.HTTPBind, c.LogLevel = "ci=unknown", "127.0.0.1:0", "memory", "off", "error"
	require.ErrorContains(t, serve(ctx, c, map[string]string{"a": fakeSecret}, out), `there is no account "unknown"`)
}

// gate lets the steps of stages end when the test says so.
type gate struct {
	mu   sync.Mutex
	open map[string]bool
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open[r.URL.Path] {
		w.WriteHeader(http.StatusNotFound)
	}
}

func (g *gate) release(stage string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open["/"+stage] = true
}

// Rule D7: in a real cluster, a HorizontalPodAutoscaler reads the number of stages through the aggregation layer and
// scales the delegates of the chart. A delegate that the cluster removes while it has a stage finishes it first.
func TestAClusterScalesTheDelegates(t *testing.T) {
	t.Parallel()
	c := testbed.Kubernetes(t)
	namespace := c.NewNamespace(t)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(t, args...)
		require.NoError(t, err, out)
		return out
	}
	apply := func(manifest string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "manifest.yaml")
		require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
		kubectl("apply", "-f", file)
	}
	g := &gate{open: map[string]bool{}}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(c.HostIP, "0"))
	require.NoError(t, err)
	gates := &httptest.Server{Listener: l, Config: &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}}
	gates.Start()
	t.Cleanup(gates.Close)

	dir := t.TempDir()
	service := "dlite-metrics." + namespace + ".svc"
	cert, key := certificate(t, dir, "server", service, service)
	front := filepath.Join(dir, "front.pem")
	require.NoError(t, os.WriteFile(front, []byte(kubectl("-n", "kube-system", "get", "configmap", "extension-apiserver-authentication",
		"-o", `jsonpath={.data.requestheader-client-ca-file}`)), 0o600))
	p := start(t, &serverCommand{
		Options:  serving.Options{Listen: net.JoinHostPort(c.HostIP, "0")},
		External: externalMetricsOptions{Listen: net.JoinHostPort(c.HostIP, "0"), Cert: cert, Key: key, ClientCA: front, Names: "front-proxy-client", Accounts: namespace + "=a"},
	}, map[string]string{"a": fakeSecret}, nil)
	_, port, err := net.SplitHostPort(strings.TrimSpace(strings.TrimPrefix(p.printed(), "external metrics at https://")))
	require.NoError(t, err)

	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	bundle, err := json.Marshal(pem)
	require.NoError(t, err)
	manifest, err := os.ReadFile("../../deploy/kubernetes/external-metrics.yaml")
	require.NoError(t, err)
	documents := strings.Split(strings.NewReplacer("namespace: dlite", "namespace: "+namespace, "192.0.2.10", c.HostIP, "3462", port,
		`caBundle: ""`, "caBundle: "+string(bundle)).Replace(string(manifest)), "\n---\n")
	require.Len(t, documents, 5)
	apply(strings.Join(documents[:3], "\n---\n"))
	t.Cleanup(func() { kubectl("delete", "apiservice", "v1beta1.external.metrics.k8s.io") })
	if out, err := c.Kubectl(t, "wait", "--for=condition=Available", "apiservice/v1beta1.external.metrics.k8s.io", "--timeout=60s"); err != nil {
		t.Fatalf("%s\n%s", out, kubectl("get", "apiservice", "v1beta1.external.metrics.k8s.io", "-o", "jsonpath={.status}"))
	}
	const path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/"
	require.Contains(t, kubectl("get", "--raw", path+namespace+"/dlite-stages"), `"value":"0"`)
	out, err := c.Kubectl(t, "get", "--raw", path+"default/dlite-stages")
	require.Error(t, err)
	require.Contains(t, out, "has no account")
	// The API server decides who may read the metrics.
	out, err = c.Kubectl(t, "--as", "system:serviceaccount:"+namespace+":default", "get", "--raw", path+namespace+"/dlite-stages")
	require.Error(t, err)
	require.Contains(t, out, "orbidden")
	apply(strings.Join(documents[3:], "\n---\n"))

	const image = "test.invalid/delegate-scale:1"
	c.ImportProgram(t, image, "delegate", testbed.BuildStatic(t, "./examples/delegate"))
	values := filepath.Join(dir, "values.yaml")
	require.NoError(t, os.WriteFile(values, fmt.Appendf(nil, `
manager: {url: %q, accountID: a}
token: {value: %q}
tags: "cluster,linux"
maxStages: 1
image: {delegate: %q, agent: %q}
ledger: {claim: false}
drainSeconds: 120
autoscale: {kind: hpa, min: 1, max: 3, scaleDownSeconds: 0}
resources: {requests: {cpu: 1m, memory: 1Mi}}
settings: {POLL_INTERVAL_MILLISECS: 200}
`, p.url, fakeSecret, image, c.AgentImage(t)), 0o600))
	_, err = testbed.Helm(t, c.Kubeconfig, "install", "ci", "../../deploy/chart", "--namespace", namespace, "--values", values)
	require.NoError(t, err)

	signed, err := issue(map[string]string{"a": fakeSecret}, "a", time.Hour, "")
	require.NoError(t, err)
	calls, err := api.New(api.Config{URL: p.url, Account: "a", Token: signed, HTTP: p.http})
	require.NoError(t, err)
	for i := range 3 {
		script := fmt.Sprintf("until wget -qO- %s/stage-%d; do sleep 0.2; done", gates.URL, i)
		data, err := json.Marshal(map[string]any{"image": c.Image, "run": map[string]any{"entrypoint": []string{"sh", "-c"}, "commands": []string{script}}})
		require.NoError(t, err)
		_, err = calls.SubmitStage(t.Context(), api.StageRequest{
			ID: fmt.Sprintf("stage-%d", i), Infra: "kubernetes", Selectors: []string{"cluster"}, Steps: []api.StepRequest{{ID: "wait", Data: data}},
		})
		require.NoError(t, err)
	}
	eventually := func(message string, done func() bool) {
		t.Helper()
		if !assert.Eventually(t, done, 2*time.Minute, 200*time.Millisecond, message) {
			hpa, _ := c.Kubectl(t, "-n", namespace, "describe", "hpa,statefulset")
			pods, _ := c.Kubectl(t, "-n", namespace, "get", "pods")
			t.Fatalf("%s\n%s", hpa, pods)
		}
	}
	stage := func(id string) api.Stage {
		st, err := calls.Stage(t.Context(), id)
		require.NoError(t, err)
		return st
	}
	eventually("three delegates run three stages", func() bool {
		for i := range 3 {
			if st := stage(fmt.Sprintf("stage-%d", i)); st.Steps[0].Status != api.Running {
				return false
			}
		}
		return true
	})

	// Only the stage of the delegate with the highest number continues: the cluster removes that one first.
	delegates, err := calls.Delegates(t.Context())
	require.NoError(t, err)
	names := map[string]string{}
	for _, d := range delegates {
		names[d.ID] = d.Name
	}
	last := ""
	for i := range 3 {
		id := fmt.Sprintf("stage-%d", i)
		if names[stage(id).DelegateID] == "ci-2" {
			last = id
		} else {
			g.release(id)
		}
	}
	require.NotEmpty(t, last, "%v", names)
	eventually("the cluster removes the last delegate, and the next one is gone", func() bool {
		return strings.Contains(kubectl("-n", namespace, "get", "pod", "ci-2", "-o", "json"), "deletionTimestamp") &&
			!strings.Contains(kubectl("-n", namespace, "get", "pods", "-o", "name"), "pod/ci-1")
	})
	require.Equal(t, api.Running, stage(last).Status, "it drains")
	g.release(last)
	eventually("the stage has ended", func() bool { st := stage(last); return st.Ended() })
	require.Equal(t, api.Success, stage(last).Status, "%+v", stage(last))
	eventually("the delegate has ended", func() bool {
		return !strings.Contains(kubectl("-n", namespace, "get", "pods", "-o", "name"), "pod/ci-2")
	})
	kubectl("-n", namespace, "delete", "hpa/ci", "statefulset/ci", "--wait=false")
	kubectl("-n", namespace, "wait", "--for=delete", "pod/ci-0", "--timeout=90s")
	require.NotContains(t, kubectl("-n", namespace, "get", "pods", "-o", "name"), "dlite-")
}
