package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/vm"
)

// Rule D6: the settings of a pool by time and demand are read, and only machines of spare capacity are watched for notices.
func TestPoolsByTimeAndDemandAreRead(t *testing.T) {
	t.Parallel()
	list, err := readPools(pools(t, `pools:
  - name: cloud
    max: 9
    forecast: true
    shrink_after: 15m
    price_per_hour: 0.1008
    schedule:
      - {days: mon-fri, from: "07:00", to: "19:00", zone: Europe/Berlin, min: 5}
    ec2: {region: eu-west-1, ami: ami-0, spot: true}
  - name: plain
    max: 3
    ec2: {region: eu-west-1, ami: ami-0}
`))
	require.NoError(t, err)
	assert.Equal(t, []windowSettings{{Days: "mon-fri", From: "07:00", To: "19:00", Zone: "Europe/Berlin", Min: 5}}, list[0].Schedule)
	assert.Equal(t, 15*time.Minute, list[0].Shrink.Duration)
	assert.InDelta(t, 0.1008, list[0].Price, 0)
	assert.True(t, list[0].Forecast)
	assert.Equal(t, "http://169.254.169.254", list[0].metadata())
	assert.Empty(t, list[1].metadata())
}

// The numbers of the manager reach the pools with a forecast. Stages that name no pool are for the first one.
func TestWaitingStagesReachTheirPools(t *testing.T) {
	t.Parallel()
	var f forecast
	f.report(map[string]int{"": 1}) // there are no pools yet
	m := &machines{forecast: map[string]bool{"first": true, "second": true, "third": false}}
	for _, name := range []string{"first", "second", "third"} {
		p, err := vm.NewPool(struct{ vm.Provider }{}, vm.PoolConfig{Name: name, Dir: filepath.Join(t.TempDir(), name), Max: 10})
		require.NoError(t, err)
		m.pools = append(m.pools, p)
	}
	f.use([]driver.Driver{m})
	f.report(map[string]int{"": 1, "first": 2, "second": 4, "third": 5, "unknown": 6})
	var got []int
	for _, p := range m.pools {
		got = append(got, p.Stats().Expected)
	}
	assert.Equal(t, []int{3, 4, 0}, got)
	f.report(map[string]int{})
	assert.Zero(t, m.pools[0].Stats().Expected)
}
