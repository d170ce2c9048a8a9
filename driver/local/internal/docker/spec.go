package docker

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/nat"

	"github.com/delegate-io/dlite/driver/local/internal/steps"
	"github.com/delegate-io/dlite/internal/process"
	"github.com/delegate-io/dlite/internal/recorded"
)

// containerSpec is the request to create a container.
type containerSpec struct {
	config  *container.Config
	host    *container.HostConfig
	network *network.NetworkingConfig
	// primaryNetwork is the network of the creation. ownNetwork is set if that is the transaction's
	// network.
	primaryNetwork string
	ownNetwork     bool
}

func (r *run) containerSpec() (*containerSpec, error) {
	env, err := r.Environ(nil)
	if err != nil {
		return nil, err
	}
	mounts, err := r.mounts(env)
	if err != nil {
		return nil, err
	}
	devices, err := r.devices()
	if err != nil {
		return nil, err
	}
	ulimits, err := r.ulimits()
	if err != nil {
		return nil, err
	}
	exposed, bindings, err := r.ports()
	if err != nil {
		return nil, err
	}
	hosts, err := r.extraHosts()
	if err != nil {
		return nil, err
	}
	argv, err := r.Argv(env)
	if err != nil {
		return nil, err
	}
	entry := len(r.Step.Run.Entrypoint)
	s := &containerSpec{
		config: &container.Config{
			Image:        r.Step.Image,
			User:         r.Step.User,
			Env:          process.List(env),
			Entrypoint:   nonEmpty(argv[:entry]),
			Cmd:          nonEmpty(argv[entry:]),
			WorkingDir:   r.containerDir(),
			Labels:       r.Labels(),
			ExposedPorts: exposed,
			AttachStdout: true,
			AttachStderr: true,
		},
		host: &container.HostConfig{
			Mounts:       mounts,
			PortBindings: bindings,
			DNS:          r.Step.DNS,
			DNSSearch:    r.Step.DNSSearch,
			ExtraHosts:   hosts,
			Privileged:   r.Step.Privileged,
			ShmSize:      r.Step.ShmSize,
			// The engine's default driver might send the output elsewhere, and the output is not
			// masked. json-file keeps it until the container is removed, so that Reattach can read it
			// (docs/security.md). With a limit the engine would remove output that Reattach must read.
			LogConfig: container.LogConfig{Type: "json-file"},
			Resources: container.Resources{
				CPUPeriod:  r.Step.CPUPeriod,
				CPUQuota:   r.Step.CPUQuota,
				CPUShares:  r.Step.CPUShares,
				CpusetCpus: strings.Join(r.Step.CPUSet, ","),
				Memory:     r.Step.MemLimit,
				MemorySwap: r.Step.MemSwapLimit,
				Devices:    devices,
				Ulimits:    ulimits,
			},
		},
	}
	if r.Step.KeepOutput > 0 {
		s.host.LogConfig.Config = map[string]string{"max-size": strconv.FormatInt(r.Step.KeepOutput, 10), "max-file": "1"}
	}
	r.join(s)
	return s, nil
}

// join sets the network: the transaction's, unless the step names another one.
func (r *run) join(s *containerSpec) {
	s.primaryNetwork = r.Step.Network
	if r.UsesOwnNetwork(r.Step.Network) {
		s.primaryNetwork, s.ownNetwork = r.Tx.Name, true
	}
	r.attach(s, s.primaryNetwork)
}

// attach sets the first network of the container.
func (r *run) attach(s *containerSpec, name string) {
	s.primaryNetwork = name
	mode := container.NetworkMode(name)
	s.host.NetworkMode = mode
	if mode.IsUserDefined() {
		s.network = &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
			name: {Aliases: r.aliases()},
		}}
	}
}

// aliases returns the names by which other steps reach this step: its network aliases, its id, and the
// name of a background step.
func (r *run) aliases() []string {
	list := slices.Clone(r.Step.NetworkAliases)
	if id := steps.Slug(r.Step.ID); !slices.Contains(list, id) {
		list = append(list, id)
	}
	// Only background steps have unique names.
	if name := steps.Slug(r.Step.Name); r.Step.Detach && r.Step.Name != "" && !slices.Contains(list, name) {
		list = append(list, name)
	}
	return list
}

// nonEmpty returns nil for an empty list, which would replace the entrypoint or command of the image.
func nonEmpty(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

func (r *run) containerDir() string {
	dir := r.Step.WorkingDir
	switch {
	case dir == "" && r.Step.Detach && len(r.Step.Run.Entrypoint) == 0:
		return "" // the image's
	case dir == "":
		return steps.WorkspaceMount
	case path.IsAbs(dir):
		return dir
	}
	return path.Join(steps.WorkspaceMount, dir)
}

// mounts lists the workspace, the step's own directory and its volumes. It adds variables with the
// paths of the volumes to env.
func (r *run) mounts(env map[string]string) ([]mount.Mount, error) {
	list := []mount.Mount{{Type: mount.TypeBind, Source: r.Tx.WorkspaceDir(), Target: steps.WorkspaceMount}}
	for _, b := range r.Files.Mounts {
		list = append(list, mount.Mount{Type: mount.TypeBind, Source: b.Source, Target: b.Target, ReadOnly: b.ReadOnly})
	}
	for _, m := range r.Step.Volumes {
		v, err := r.Mounted(m)
		if err != nil {
			return nil, err
		}
		if !path.IsAbs(m.Path) && !strings.Contains(m.Path, ":") {
			return nil, fmt.Errorf("volume %q: mount path %q is not absolute", m.Name, m.Path)
		}
		env["DLITE_VOLUME_"+recorded.VariableName(m.Name)] = m.Path
		one := mount.Mount{Type: mount.TypeBind, Source: v.Path, Target: m.Path, ReadOnly: v.ReadOnly}
		if strings.HasPrefix(v.Path, `\\.\`) {
			one.Type = mount.TypeNamedPipe
		}
		// A volume may replace the workspace or another mount.
		list = slices.DeleteFunc(list, func(o mount.Mount) bool { return path.Clean(o.Target) == path.Clean(m.Path) })
		list = append(list, one)
	}
	return list, nil
}

func (r *run) devices() ([]container.DeviceMapping, error) {
	var list []container.DeviceMapping
	for _, dev := range r.Step.Devices {
		if dev == nil {
			continue
		}
		v, ok := r.Volumes[dev.Name]
		if !ok {
			return nil, fmt.Errorf("device %q is not a volume of the transaction or of the step", dev.Name)
		}
		inside := dev.DevicePath
		if inside == "" {
			inside = v.Path
		}
		permissions := "rwm"
		if v.ReadOnly {
			permissions = "rm"
		}
		list = append(list, container.DeviceMapping{PathOnHost: v.Path, PathInContainer: inside, CgroupPermissions: permissions})
	}
	return list, nil
}

func (r *run) ulimits() ([]*container.Ulimit, error) {
	var list []*container.Ulimit
	for _, u := range r.Step.Ulimits {
		if u == nil {
			continue
		}
		hard := u.Hard
		if hard == 0 {
			hard = u.Soft
		}
		switch {
		case u.Name == "":
			return nil, errors.New("a ulimit has no name")
		case hard >= 0 && (u.Soft > hard || u.Soft < 0): // a negative limit means no limit
			return nil, fmt.Errorf("limit %s: the soft limit %d is above the hard limit %d", u.Name, u.Soft, hard)
		}
		list = append(list, &container.Ulimit{Name: u.Name, Soft: u.Soft, Hard: hard})
	}
	return list, nil
}

// ports converts the port bindings. The key is a host port, optionally with an address. The value is a
// container port, optionally with a protocol.
func (r *run) ports() (nat.PortSet, nat.PortMap, error) {
	if len(r.Step.PortBindings) == 0 {
		return nil, nil, nil
	}
	exposed, bindings := nat.PortSet{}, nat.PortMap{}
	for host, inside := range r.Step.PortBindings {
		mappings, err := nat.ParsePortSpec(host + ":" + inside)
		if err != nil {
			return nil, nil, fmt.Errorf("port binding %q to %q: %w", host, inside, err)
		}
		for _, m := range mappings {
			exposed[m.Port] = struct{}{}
			bindings[m.Port] = append(bindings[m.Port], m.Binding)
		}
	}
	return exposed, bindings, nil
}

// mountSocket mounts the engine's socket if the step or the transaction asks for it.
func (r *run) mountSocket(s *containerSpec, cli client.APIClient) {
	if !r.Step.MountDockerSocket && !r.Env.MountDockerSocket {
		return
	}
	const target = "/var/run/docker.sock"
	if slices.ContainsFunc(s.host.Mounts, func(m mount.Mount) bool { return path.Clean(m.Target) == target }) {
		return // a volume of the step replaces the socket
	}
	s.host.Mounts = append(s.host.Mounts, mount.Mount{Type: mount.TypeBind, Source: socketPath(cli), Target: target})
}

// hostGateway stands for the address of this machine in a list of extra hosts.
const hostGateway = "host-gateway"

// extraHosts returns the step's own hosts. A container with its own network also gets the names of the
// services on the host.
func (r *run) extraHosts() ([]string, error) {
	mode := container.NetworkMode(r.Step.Network)
	if mode.IsHost() || mode.IsContainer() || mode.IsNone() {
		return r.Step.ExtraHosts, nil
	}
	list, err := r.Tx.Services()
	if err != nil {
		return nil, err
	}
	hosts := slices.Clone(r.Step.ExtraHosts)
	add := func(name string) {
		known := func(h string) bool { return strings.HasPrefix(h, name+":") || strings.HasPrefix(h, name+"=") }
		if !slices.ContainsFunc(hosts, known) {
			hosts = append(hosts, name+":"+hostGateway)
		}
	}
	for _, s := range list {
		if !s.Host {
			continue
		}
		add(steps.HostName)
		for _, name := range s.Names {
			add(steps.Slug(name))
		}
	}
	return hosts, nil
}
