package libvirt

import (
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/provider"
)

// namespace marks the metadata of the driver's machines.
const namespace = "https://github.com/delegate-io/dlite/driver/vm/libvirt"

// defaultTemplate describes a machine with virtio devices alone. The machine does not survive
// the host, so its disk does not wait for the host's disks. [Config.Template] documents the
// placeholders.
const defaultTemplate = `<domain type='${type}' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>${id}</name>
  <metadata>${metadata}</metadata>
  <memory unit='MiB'>${memory_mb}</memory>
  <vcpu>${cpus}</vcpu>
  <os><type arch='${arch}' machine='${machine}'>hvm</type>${boot}</os>
  <features><acpi/></features>
  ${cpu}
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    ${disk}
    <channel type='unix'><source mode='bind'/><target type='virtio' name='${port}'/></channel>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='none'/>
  </devices>
  <qemu:commandline>
    <qemu:arg value='-netdev'/><qemu:arg value='${network}'/>
    <qemu:arg value='-device'/><qemu:arg value='virtio-net-pci,netdev=dlite,romfile=,addr=0x1e'/>
  </qemu:commandline>
</domain>
`

// xml returns the description of a machine's domain.
func (p *libvirtProvider) xml(spec vm.Spec, disk string) (string, error) {
	return expand(p.config.Template, placeholders(p.config, spec, disk))
}

// placeholders returns the values of the placeholders, see [Config.Template].
func placeholders(c Config, spec vm.Spec, disk string) map[string]string {
	values := map[string]string{
		"type": escape(c.Type), "arch": escape(c.Arch), "machine": escape(c.Machine), "id": escape(spec.ID),
		"memory_mb": strconv.Itoa(c.MemoryMB), "cpus": strconv.Itoa(c.CPUs), "port": escape(provider.PortName),
		"boot": "", "cpu": "", "disk": "",
	}
	var labels strings.Builder
	for _, name := range slices.Sorted(maps.Keys(spec.Labels)) {
		fmt.Fprintf(&labels, "<dlite:label name='%s'>%s</dlite:label>", escape(name), escape(spec.Labels[name]))
	}
	values["metadata"] = fmt.Sprintf("<dlite:machine xmlns:dlite='%s' owner='%s'>%s</dlite:machine>", namespace, escape(spec.Owner), labels.String())
	for _, e := range [][2]string{{"kernel", c.Kernel}, {"initrd", c.Initrd}, {"cmdline", c.Append}} {
		if e[1] != "" {
			values["boot"] += fmt.Sprintf("<%[1]s>%[2]s</%[1]s>", e[0], escape(e[1]))
		}
	}
	switch {
	case c.CPU != "":
		values["cpu"] = fmt.Sprintf("<cpu mode='custom' match='exact' check='none'><model>%s</model></cpu>", escape(c.CPU))
	case c.Type == "kvm":
		values["cpu"] = "<cpu mode='host-passthrough'/>"
	}
	if disk != "" {
		values["disk"] = fmt.Sprintf("<disk type='file' device='disk'>"+
			"<driver name='qemu' type='qcow2' cache='unsafe' discard='unmap'/><source file='%s'/><target dev='vda' bus='virtio'/></disk>", escape(disk))
	}
	network := "user,id=dlite"
	if c.Restrict {
		network += ",restrict=on"
	}
	for _, port := range append([]int{agentPort}, c.Forward...) {
		// The kernel chooses the host's port: no other process can take it.
		network += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:0-:%d", port)
	}
	values["network"] = escape(network)
	return values
}

// expand replaces the placeholders of a template.
func expand(template string, values map[string]string) (string, error) {
	var unknown error
	text := os.Expand(template, func(name string) string {
		v, ok := values[name]
		switch {
		case name == "$":
			return "$"
		case !ok && unknown == nil:
			unknown = fmt.Errorf("setting Template: unknown placeholder ${%s}: the placeholders are %s",
				name, strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		}
		return v
	})
	return text, unknown
}

// channel finds the socket of the serial port in a running domain's XML.
func channel(text string) (string, error) {
	var domain struct {
		Channels []struct {
			Source struct {
				Path string `xml:"path,attr"`
			} `xml:"source"`
			Target struct {
				Name string `xml:"name,attr"`
			} `xml:"target"`
		} `xml:"devices>channel"`
	}
	if err := xml.Unmarshal([]byte(text), &domain); err != nil {
		return "", fmt.Errorf("read the domain: %w", err)
	}
	for _, c := range domain.Channels {
		if c.Target.Name == provider.PortName && c.Source.Path != "" {
			return c.Source.Path, nil
		}
	}
	return "", fmt.Errorf("the domain has no channel %s", provider.PortName)
}

// owner returns the owner that the metadata of a machine names.
func owner(metadata string) string {
	var machine struct {
		Owner string `xml:"owner,attr"`
	}
	if xml.Unmarshal([]byte(metadata), &machine) != nil {
		return ""
	}
	return machine.Owner
}

// escape escapes XML's special characters.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder does not fail
	return b.String()
}
