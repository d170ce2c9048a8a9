package telemetry

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/mem"
)

// Host collects metrics of this machine: CPU, memory, and the disk of a directory,
// which need not exist. If the directory is "", it omits the disk. It omits values
// that it cannot measure.
func Host(folder string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("dlite_host_"+name, help, labels, nil)
	}
	return &host{
		folder:    folder,
		cpu:       desc("cpu_seconds_total", "Time of the host's processors, in seconds, by what they did with it.", "mode"),
		memTotal:  desc("memory_bytes", "The host's memory."),
		memFree:   desc("memory_available_bytes", "The host's memory that programs can still have."),
		diskTotal: desc("disk_bytes", "The size of the file system under the work folder."),
		diskFree:  desc("disk_available_bytes", "What is free on the file system under the work folder."),
	}
}

type host struct {
	folder                                      string
	cpu, memTotal, memFree, diskTotal, diskFree *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (h *host) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{h.cpu, h.memTotal, h.memFree, h.diskTotal, h.diskFree} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. The CPU times are counters. Unlike a
// share since the previous call, they are correct for several clients.
func (h *host) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	gauge := func(d *prometheus.Desc, v uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	if times, err := cpu.TimesWithContext(ctx, false); err == nil && len(times) > 0 {
		t := times[0]
		idle := t.Idle + t.Iowait
		// Guest time is part of user time.
		busy := t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal
		out <- prometheus.MustNewConstMetric(h.cpu, prometheus.CounterValue, idle, "idle")
		out <- prometheus.MustNewConstMetric(h.cpu, prometheus.CounterValue, busy, "busy")
	}
	if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		gauge(h.memTotal, m.Total)
		gauge(h.memFree, m.Available)
	}
	if h.folder == "" {
		return
	}
	if d, err := disk.UsageWithContext(ctx, existingParent(h.folder)); err == nil {
		gauge(h.diskTotal, d.Total)
		gauge(h.diskFree, d.Free)
	}
}

// existingParent returns the directory, or its nearest parent that exists.
func existingParent(folder string) string {
	for {
		if _, err := os.Stat(folder); err == nil {
			return folder
		}
		up := filepath.Dir(folder)
		if up == folder {
			return folder
		}
		folder = up
	}
}
