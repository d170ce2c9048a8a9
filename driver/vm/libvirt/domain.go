package libvirt

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/delegate-io/dlite/driver/vm"
)

// Domain is what a template is executed with.
type Domain struct {
	Config
	// ID is the machine's and the domain's name. Owner and Labels are the machine's.
	ID, Owner string
	Labels    map[string]string
	// Namespace is that of the metadata by which machines are found, Port the
	// serial port's name.
	Namespace, Port string
	// Disk is the machine's volume, empty without one.
	Disk string
	// Network is QEMU's user-mode network, with the ports that it forwards.
	Network string
}

// namespace marks the metadata of our machines.
const namespace = "https://github.com/delegate-io/dlite/driver/vm/libvirt"

// DefaultTemplate is a machine with virtio devices and without what nobody looks at.
// Its disk waits for no disk of the host: a machine does not survive that.
const DefaultTemplate = `<domain type='{{xml .Type}}' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>{{xml .ID}}</name>
  <metadata>
    <dlite:machine xmlns:dlite='{{xml .Namespace}}' owner='{{xml .Owner}}'>
      {{- range $name, $value := .Labels}}<dlite:label name='{{xml $name}}'>{{xml $value}}</dlite:label>{{end -}}
    </dlite:machine>
  </metadata>
  <memory unit='MiB'>{{.MemoryMB}}</memory>
  <vcpu>{{.CPUs}}</vcpu>
  <os>
    <type arch='{{xml .Arch}}' machine='{{xml .Machine}}'>hvm</type>
    {{- if .Kernel}}<kernel>{{xml .Kernel}}</kernel>{{end}}
    {{- if .Initrd}}<initrd>{{xml .Initrd}}</initrd>{{end}}
    {{- if .Append}}<cmdline>{{xml .Append}}</cmdline>{{end}}
  </os>
  <features><acpi/></features>
  {{- if .CPU}}<cpu mode='custom' match='exact' check='none'><model>{{xml .CPU}}</model></cpu>
  {{- else if eq .Type "kvm"}}<cpu mode='host-passthrough'/>{{end}}
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>destroy</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    {{- if .Disk}}
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='unsafe' discard='unmap'/>
      <source file='{{xml .Disk}}'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    {{- end}}
    <channel type='unix'><source mode='bind'/><target type='virtio' name='{{xml .Port}}'/></channel>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
    <memballoon model='none'/>
  </devices>
  <qemu:commandline>
    <qemu:arg value='-netdev'/><qemu:arg value='{{xml .Network}}'/>
    <qemu:arg value='-device'/><qemu:arg value='virtio-net-pci,netdev=dlite,romfile=,addr=0x1e'/>
  </qemu:commandline>
</domain>
`

// xml is the domain of a machine.
func (p *Provider) xml(spec vm.Spec, disk string) (string, error) {
	network := "user,id=dlite"
	if p.config.Restrict {
		network += ",restrict=on"
	}
	for _, port := range append([]int{AgentPort}, p.config.Forward...) {
		// The kernel chooses the host's port: nobody else can take it.
		network += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:0-:%d", port)
	}
	var text strings.Builder
	err := p.template.Execute(&text, Domain{
		Config: p.config, ID: spec.ID, Owner: spec.Owner, Labels: spec.Labels,
		Namespace: namespace, Port: vm.PortName, Disk: disk, Network: network,
	})
	if err != nil {
		return "", fmt.Errorf("execute Template: %w", err)
	}
	return text.String(), nil
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
		if c.Target.Name == vm.PortName && c.Source.Path != "" {
			return c.Source.Path, nil
		}
	}
	return "", fmt.Errorf("the domain has no channel %s", vm.PortName)
}

// owner reads what the template has written.
func owner(metadata string) string {
	var machine struct {
		Owner string `xml:"owner,attr"`
	}
	if xml.Unmarshal([]byte(metadata), &machine) != nil {
		return ""
	}
	return machine.Owner
}

func escape(text string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(text))
	return b.String(), err
}
