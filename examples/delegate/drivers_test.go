package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rule X2: DRIVERS selects the driver of each task type.
func TestDriversAreChosen(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]struct {
		drivers []string
		local   string
	}{
		"":                                {[]string{"local"}, "local"},
		"DRIVERS=kubernetes\n":            {[]string{"kubernetes"}, "kubernetes"},
		"DRIVERS=' Kubernetes, local,'\n": {[]string{"kubernetes", "local"}, "local"},
		"DRIVERS=kubernetes,vm\nVM_POOLS=p\nLOCAL_STAGES=vm\n": {[]string{"kubernetes", "vm"}, "vm"},
	} {
		c, _, err := load(t, required+"KUBERNETES_AGENT_IMAGE=agent:1\n"+file)
		require.NoError(t, err, file)
		assert.Equal(t, want.drivers, c.Drivers, file)
		assert.Equal(t, want.local, c.LocalStages, file)
	}
	for file, want := range map[string]string{
		"DRIVERS=mainframe\n":                             "DRIVERS: it must be a list of local, vm, kubernetes",
		"DRIVERS=','\n":                                   "DRIVERS: it must be a list of",
		"DRIVERS=local\nLOCAL_STAGES=vm\n":                "LOCAL_STAGES: it must be one of DRIVERS",
		"DRIVERS=local,vm\nVM_POOLS=p\nLOCAL_STAGES=vm\n": "LOCAL_STAGES: it must be local",
		"DRIVERS=vm\n":                                    "VM_POOLS: it must be set",
		"DRIVERS=kubernetes\n":                            "KUBERNETES_AGENT_IMAGE: it must be set",
	} {
		_, _, err := load(t, required+file)
		assert.ErrorContains(t, err, want, file)
	}
}

// pools writes a file for VM_POOLS.
func pools(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pools.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Rule D6: the pools get the values of the pool file, and the number of slots follows from them.
func TestPoolsAreRead(t *testing.T) {
	t.Parallel()
	file := pools(t, `pools:
  - name: small
    min: 2
    max: 8
    max_age: 12h
    labels: {team: build}
    qemu: {kernel: /boot/vmlinux, initrd: /srv/guest, memory_mb: 512, snapshot: true}
  - name: big
    max: 3
    ec2: {region: eu-west-1, ami: ami-0, subnets: [subnet-a, subnet-b], max_life: 24h}
`)
	list, err := readPools(file)
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, 12*time.Hour, list[0].MaxAge.Duration)
	assert.Equal(t, 512, list[0].QEMU.MemoryMB)
	assert.Equal(t, "/boot/vmlinux", list[0].QEMU.Kernel)
	assert.Equal(t, []string{"subnet-a", "subnet-b"}, list[1].EC2.Subnets)

	c, _, err := load(t, required+"DRIVERS=vm\nVM_POOLS="+file+"\n")
	require.NoError(t, err)
	assert.Equal(t, 11, c.slots())
	c.MaxStages = 2
	assert.Equal(t, 2, c.slots())
}

func TestPoolsThatAreWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  "has no pools",
		"pools: []":                         "has no pools",
		"pools:\n  - name: a\n    mx: 3\n":  "mx",
		"pools:\n  - name: a\n    max: 1\n": "exactly one of qemu, libvirt and ec2",
		"pools:\n  - name: a\n    max: 1\n    qemu: {image: x}\n    libvirt: {image: x}\n": "exactly one of",
		"pools:\n  - name: a\n    max: 1\n    max_age: soon\n    qemu: {image: x}\n":       "soon",
		"pools:\n  - name: a\n    max: 1\n    boot_timeout: 120\n    qemu: {image: x}\n":   `such as 90s or 12h, and not "120"`,
		"pools:\n  - {name: machines, max: 1, qemu: {}}\n":                                 `cannot be called "machines"`,
		"pools:\n  - {name: a, max: 1, qemu: {}}\n  - {name: a, max: 1, qemu: {}}\n":       "two pools with the name",
	} {
		cfg := config{DriverConfig: DriverConfig{VMPools: pools(t, text), VMStateDir: t.TempDir()}}
		_, err := openMachines(t.Context(), cfg, nil, zerolog.Nop())
		assert.ErrorContains(t, err, want, text)
	}
	started := t.TempDir()
	cfg := config{DriverConfig: DriverConfig{VMStateDir: started, VMPools: pools(t,
		"pools:\n  - {name: a, min: 1, max: 1, qemu: {kernel: "+os.Args[0]+"}}\n  - {name: b, max: 1, min: 2, qemu: {kernel: "+os.Args[0]+"}}\n")}}
	_, err := openMachines(t.Context(), cfg, nil, zerolog.Nop())
	require.ErrorContains(t, err, `pool "b"`)
	assert.NoDirExists(t, filepath.Join(started, "a"), "where one is wrong, none is started")
	_, err = readPools("/no/such/file")
	assert.ErrorContains(t, err, "VM_POOLS")
}
