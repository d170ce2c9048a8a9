package kubernetes_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/drivertest"
	"github.com/delegate-io/dlite/driver/kubernetes"
	"github.com/delegate-io/dlite/task/stage"
)

// servicesRole has the permissions of a delegate that creates Services.
const servicesRole = `  - apiGroups: [""]
    resources: ["services"]
    verbs: ["create", "get", "list", "delete"]`

func withServices(c *kubernetes.Config) { c.Services = true }

// web returns a background step that serves a text at port 8080, with port 80 for other pods.
func (p *place) web(text string) stage.Step {
	s := p.sh("Web_App", "echo "+text+" > index.html; exec httpd -f -p 8080 -h .")
	s.Detach, s.PortBindings = true, map[string]string{"80": "8080", "81": "8080/tcp"}
	return s
}

// Rules D7, T2: with the option, a pod outside of the transaction reaches a background step of a stage by its Service, also after
// other steps of the stage have ended. The Service leads to the pod of its transaction only, is on record before
// it exists, and is removed by the cleanup.
func TestAServiceLeadsToABackgroundStep(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	d := p.driver(t, p.asDelegate(t, kubernetes.Role+servicesRole), withServices)
	p.kubectl(t, "run", "neighbour", "--image", p.Image, "--restart=Never", "--", "sleep", "3600")
	p.kubectl(t, "wait", "--for=condition=Ready", "pod/neighbour", "--timeout=60s")

	type reached struct{ name, ip string }
	begin := func(id, text string, changes ...func(*driver.Environment)) (*transaction, reached) {
		web, short := p.web(text), p.sh("short", "true")
		tx := p.begin(t, d, append(changes, func(env *driver.Environment) {
			env.ID, env.Labels[driver.LabelTransaction] = id, id
		})...)
		tx.run(t, short) // the pod is not ready from now on
		res, err := tx.execute(t, web, drivertest.NewOutput())
		require.NoError(t, err)
		require.True(t, res.Detached)
		out := strings.Fields(tx.run(t, p.sh("look", "echo $DLITE_SERVICE_WEB_APP_CLUSTER_NAME $DLITE_SERVICE_WEB_APP_CLUSTER_IP")))
		require.Len(t, out, 2)
		return tx, reached{out[0], out[1]}
	}
	announced := p.web("first")
	first, one := begin("one", "first", announce(p.sh("short", "true"), announced))
	second, two := begin("two", "second")
	require.NotEqual(t, one, two)
	for want, at := range map[string]reached{"first": one, "second": two} {
		for _, port := range []string{"80", "81"} {
			got := p.kubectl(t, "exec", "neighbour", "--", "sh", "-c", "for i in $(seq 300); do wget -qO- http://"+at.ip+":"+port+"/index.html 2>/dev/null && break; sleep 0.1; done")
			assert.Equal(t, want+"\n", got)
		}
	}

	services := map[string]bool{}
	for _, r := range first.ledger.all() {
		if r.Kind == "service" {
			services[r.ID] = true
			name := r.ID[strings.LastIndex(r.ID, "/")+1:]
			assert.Equal(t, name+"."+p.namespace+".svc", one.name)
			assert.LessOrEqual(t, len(name), 63)
			assert.Contains(t, name, "-web-app-")
			var made struct {
				Metadata struct {
					Labels          map[string]string
					OwnerReferences []struct{ Kind, Name string }
				}
			}
			require.NoError(t, json.Unmarshal([]byte(p.kubectl(t, "get", "service", name, "-o", "json")), &made))
			assert.Equal(t, "dlite", made.Metadata.Labels["app.kubernetes.io/managed-by"])
			require.Len(t, made.Metadata.OwnerReferences, 1)
			assert.Equal(t, first.pod(t), made.Metadata.OwnerReferences[0].Name)
		}
	}
	require.Len(t, services, 1)

	// A sweep finds it by the labels of its transaction.
	found, err := d.Find(t.Context(), map[string]string{driver.LabelTransaction: "one"})
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, r := range found {
		kinds[r.Kind]++
		assert.Equal(t, "one", r.Labels[driver.LabelTransaction])
	}
	assert.Equal(t, map[string]int{"pod": 1, "service": 1}, kinds)

	first.cleanup(t)
	assert.NotContains(t, p.kubectl(t, "get", "services", "-o", "name"), first.pod(t))
	assert.Contains(t, p.kubectl(t, "get", "services", "-o", "name"), second.pod(t), "the other transaction keeps its Service")
	second.cleanup(t)
	assert.NotContains(t, p.kubectl(t, "get", "services", "-o", "name"), "dlite-")
}

// Rule D7: nothing is ignored silently. A wrong port, and a missing permission, are named before the step starts.
func TestAServiceThatCannotExistIsReported(t *testing.T) {
	t.Parallel()
	p, _ := newFault(t)
	as := p.asDelegate(t, kubernetes.Role)
	without := p.driver(t, as)
	tx := p.begin(t, p.driver(t, as, withServices))
	for want, ports := range map[string]map[string]string{
		"both must be numbers from 1 to 65535": {"http": "80"}, "the protocol of a Service must be tcp or udp": {"80": "80/sctp"},
		"the delegate needs the permissions for services": {"80": "80"},
	} {
		web := p.web("x")
		web.PortBindings = ports
		_, err := tx.execute(t, web, drivertest.NewOutput())
		require.ErrorContains(t, err, want)
	}
	// Without the option nothing needs the permission, also if the ledger has a Service of an earlier time, which the
	// cleanup of this test gets.
	tx.d = without
	plain := p.sh("plain", "sleep 60")
	plain.Detach, plain.PortBindings = true, map[string]string{"80": "8080"}
	out := drivertest.NewOutput()
	_, err := tx.execute(t, plain, out)
	require.NoError(t, err)
	assert.Contains(t, out.String(), "A step in a pod cannot have port_bindings on the node.")
}
