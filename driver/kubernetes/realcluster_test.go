package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// claim creates a volume of the cluster from source, and a claim for it with the name
// "cache".
func (p *place) claim(t *testing.T, mode, source string) {
	t.Helper()
	objects := filepath.Join(t.TempDir(), "claim.yaml")
	require.NoError(t, os.WriteFile(objects, fmt.Appendf(nil, `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Mi}
  accessModes: [%[2]s]
  storageClassName: ""
  claimRef: {namespace: %[1]s, name: cache}
  %[3]s
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: cache}
spec:
  storageClassName: ""
  accessModes: [%[2]s]
  resources: {requests: {storage: 1Mi}}
`, p.namespace, mode, source), 0o600))
	t.Cleanup(func() { _, _ = p.Kubectl(t, "delete", "pv", p.namespace, "--wait=false") })
	p.kubectl(t, "apply", "-f", objects)
	p.kubectl(t, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/cache", "--timeout=100s")
}

// Rule D7: a claim is mounted at the paths of the steps, outlives the transaction, and is
// read-only for a step that asks for it.
func TestAClaimOutlivesItsTransaction(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.claim(t, "ReadWriteMany", fmt.Sprintf("hostPath: {path: %s}", t.TempDir()))
	use := func(readOnly bool) *transaction {
		return p.begin(t, p.driver(t), func(env *driver.Environment) {
			env.Volumes = []*stage.Volume{{Claim: &stage.ClaimVolume{ID: "c", Name: "c", Claim: "cache", ReadOnly: readOnly}}}
		})
	}
	step := func(script string) stage.Step {
		s := p.sh("step", script)
		s.Volumes = []*stage.VolumeMount{{Name: "c", Path: "/cache"}}
		return s
	}
	first := use(false)
	assert.Empty(t, first.run(t, step("echo kept > /cache/file")))
	first.cleanup(t)
	assert.Equal(t, "kept\nread-only\n", use(true).run(t, step("cat /cache/file; touch /cache/x 2>/dev/null || echo read-only")))
}
