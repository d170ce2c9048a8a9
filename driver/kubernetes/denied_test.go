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

// asDelegate has the driver be a service account with this role and no other rights.
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

// without is the role with one rule less, or one verb in the first.
func without(t *testing.T, what string) string {
	t.Helper()
	if !strings.Contains(kubernetes.Role, what) {
		t.Fatal("the role does not have " + what)
	}
	return strings.Replace(kubernetes.Role, what, `"none"`, 1)
}

// D7: what the role lacks is said, soon and in the cluster's words.
func TestAPermissionThatIsMissingIsTold(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{`"watch"`: "watch the pod: ", `"pods/exec"`: "pods/exec"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p, _ := newFault(t)
			may, mayNot := p.driver(t), p.driver(t, p.asDelegate(t, without(t, what)))
			tx := p.prepare(t, may) // which can see whether it is gone
			tx.d = mayNot
			err := tx.init(t)
			tx.d = may
			requireReason(t, err, kubernetes.Refused)
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
		requireReason(t, err, kubernetes.Refused)
		require.ErrorContains(t, err, "pods/ephemeralcontainers")
	})
}

// D7: a permission that is missing for a moment costs a step nothing: bindings are
// replaced, and an API server that has just started knows of none.
func TestAPermissionThatIsMissingForAMomentCostsNothing(t *testing.T) {
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
	for range 2 { // so that the first one has been heard
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

// D7: not parallel, for all the cluster loses its API server. What is to begin meanwhile
// begins when it is back: a transaction, a step, and one with a volume of its own.
func TestWhatIsToBeginWhileTheAPIServerIsAwayBeginsLater(t *testing.T) {
	p, _ := newFault(t)
	log := drivertest.NewOutput()
	d := p.driver(t, func(c *kubernetes.Config) { c.Log = zerolog.New(log) })
	tx, next := p.begin(t, d), p.prepare(t, d)
	tx.run(t, p.sh("first", "echo the pod is known"))
	bringing := p.sh("bringing", "touch /cache/file")
	bringing.Volumes = []*stage.VolumeMount{{Name: "cache", Path: "/cache"}}
	begun, brought := make(chan error, 1), make(chan error, 1)
	var r *running
	p.withoutAPIServer(t, func() {
		r = tx.start(t.Context(), t, p.sh("later", "exit 3"), "")
		go func() {
			volumes := []*stage.Volume{{Temp: &stage.TempVolume{ID: "cache", Name: "cache"}}}
			_, err := d.Execute(t.Context(), tx.env, &driver.Step{Step: bringing, ExtraVolumes: volumes}, drivertest.NewOutput(), tx.ledger)
			brought <- err
		}()
		go func() { begun <- d.Init(t.Context(), next.env, next.ledger) }()
		log.WaitFor(t, "trying again")
		next.log.WaitFor(t, "trying again: ")
	})
	res, err := r.end(patience)
	require.NoError(t, err)
	assert.Equal(t, 3, res.ExitCode)
	require.NoError(t, <-brought)
	require.NoError(t, <-begun)
	next.run(t, p.sh("step", "true"))
}
