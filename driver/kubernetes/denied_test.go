package kubernetes_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

// asDelegate lets the driver use a service account that has only this role.
func (p *place) asDelegate(t *testing.T, role string) func(*kubernetes.Config) {
	t.Helper()
	p.apply(t, role)
	p.kubectl(t, "create", "serviceaccount", "delegate")
	p.bind(t)
	token := strings.TrimSpace(p.kubectl(t, "create", "token", "delegate"))
	return func(c *kubernetes.Config) {
		c.REST = &rest.Config{
			Host: p.rest.Host, BearerToken: token,
			TLSClientConfig: rest.TLSClientConfig{CAData: p.rest.CAData, ServerName: p.rest.ServerName},
		}
	}
}

func (p *place) bind(t *testing.T) {
	t.Helper()
	p.kubectl(t, "create", "rolebinding", "delegate", "--role=dlite-pods", "--serviceaccount="+p.namespace+":delegate")
}

// without returns the role without one rule, or without one verb of the first rule.
func without(t *testing.T, what string) string {
	t.Helper()
	if !strings.Contains(kubernetes.Role, what) {
		t.Fatal("the role does not have " + what)
	}
	return strings.Replace(kubernetes.Role, what, `"none"`, 1)
}

// Rule D7: a missing permission is reported at once, with the message of the cluster.
func TestAMissingPermissionIsReported(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{`"watch"`: "watch the pod: ", `"pods/exec"`: "pods/exec"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p, _ := newFault(t)
			may, mayNot := p.driver(t), p.driver(t, p.asDelegate(t, without(t, what)))
			tx := p.prepare(t, may) // allowed to check that nothing remains
			tx.d = mayNot
			err := tx.init(t)
			tx.d = may
			requireReason(t, err, "refused")
			require.ErrorContains(t, err, want)
		})
	}
	t.Run("ephemeralcontainers", func(t *testing.T) {
		t.Parallel()
		p, _ := newFault(t)
		announced := p.sh("announced", "echo ran")
		tx := p.begin(t, p.driver(t, p.asDelegate(t, without(t, `"pods/ephemeralcontainers"`))), announce(announced))
		assert.Equal(t, "ran\n", tx.run(t, announced))
		_, err := tx.execute(t, p.sh("other", "echo ran"), drivertest.NewOutput())
		requireReason(t, err, "refused")
		require.ErrorContains(t, err, "pods/ephemeralcontainers")
	})
}

// Rule D7: a step survives a short loss of permissions, because bindings are replaced, and a
// new API server knows no binding at first.
func TestAStepSurvivesAShortLossOfPermissions(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	c := layCable(t, p.rest)
	denials := make(chan string, 1)
	as := p.asDelegate(t, kubernetes.Role)
	d := p.driver(t, as, func(c *kubernetes.Config) {
		c.REST.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				res, err := rt.RoundTrip(r)
				if err == nil && res.StatusCode == http.StatusForbidden && strings.HasSuffix(r.URL.Path, "/pods") {
					select {
					case denials <- r.URL.String():
					default:
					}
				}
				return res, err
			})
		}
	})
	tx := p.begin(t, d)
	r := tx.start(t.Context(), t, p.sh("long", "echo begun; until [ -e go ]; do sleep 0.05; done; echo went; exit 3"), "begun\n")
	p.kubectl(t, "delete", "rolebinding", "delegate")
	c.cut()
	for range 2 { // the second denial shows that the driver received the first
		<-denials
	}
	p.bind(t)
	tx.run(t, p.sh("other", "touch go"))
	res, err := r.end(patience)
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	assert.Equal(t, "begun\nwent\n", r.out.String())
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Rule D7: a transaction, a step and a step with an additional volume start when the API
// server is back. Not parallel: the whole cluster loses its API server.
func TestStartsWaitForTheAPIServer(t *testing.T) {
	p, _ := newFault(t)
	log := drivertest.NewOutput()
	d := p.driver(t, func(c *kubernetes.Config) { c.Log = zerolog.New(log) })
	tx, next := p.begin(t, d), p.prepare(t, d)
	tx.run(t, p.sh("first", "echo the pod is in use"))
	bringing := p.sh("bringing", "touch /cache/file")
	bringing.Volumes = []*stage.VolumeMount{{Name: "cache", Path: "/cache"}}
	begun, added := make(chan error, 1), make(chan error, 1)
	var r *running
	p.withoutAPIServer(t, func() {
		r = tx.start(t.Context(), t, p.sh("later", "exit 3"), "")
		go func() {
			volumes := []*stage.Volume{{Temp: &stage.TempVolume{ID: "cache", Name: "cache"}}}
			_, err := d.Execute(t.Context(), tx.env, &driver.Step{Step: bringing, ExtraVolumes: volumes}, drivertest.NewOutput(), tx.ledger)
			added <- err
		}()
		go func() { begun <- d.Init(t.Context(), next.env, next.ledger) }()
		log.WaitFor(t, "trying again")
		next.log.WaitFor(t, "trying again: ")
	})
	res, err := r.end(patience)
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	require.NoError(t, <-added)
	require.NoError(t, <-begun)
	next.run(t, p.sh("step", "true"))
}
