package stage_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/task/stage"
)

func TestANetworkKeepsTheLabelsOfItsNodeBesideItsPool(t *testing.T) {
	t.Parallel()
	var empty stage.Network
	assert.Empty(t, empty.NodeLabels())
	assert.Nil(t, empty.OnNode(nil).Options)
	pool := empty.InPool("large")
	labels := map[string]string{"disk": "fast", "example.com/zone": "a"}
	both := pool.OnNode(labels)
	assert.Equal(t, labels, both.NodeLabels())
	assert.Equal(t, "large", both.Options[stage.PoolOption])
	assert.Empty(t, pool.NodeLabels(), "the network itself is not changed")
}
