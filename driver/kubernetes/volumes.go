package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/delegate-io/dlite/internal/podagent"
	"github.com/delegate-io/dlite/internal/recorded"
	"github.com/delegate-io/dlite/task/stage"
)

// Volumes that each pod has.
const (
	volumeBin       = "dlite-bin"
	volumeControl   = "dlite-control"
	volumeWork      = "dlite-work"
	volumeMemory    = "dlite-memory"
	volumeWorkspace = stage.WorkspaceVolume
	volumeSocket    = "dlite-docker-socket"
	spareDisk       = "dlite-spare-"
	spareMemory     = "dlite-spare-memory-"
)

// dockerSocket is the path of the socket of a Docker engine on a node.
const dockerSocket = "/var/run/docker.sock"

// mountable is a volume of the transaction in its pod.
type mountable struct {
	volume   corev1.Volume
	readOnly bool
}

// named returns the id and the name by which a step can refer to a volume.
func named(v *stage.Volume) (id, name string, err error) {
	kinds := 0
	if v.Temp != nil {
		kinds, id, name = kinds+1, v.Temp.ID, v.Temp.Name
	}
	if v.Host != nil {
		kinds, id, name = kinds+1, v.Host.ID, v.Host.Name
	}
	if v.Claim != nil {
		kinds, id, name = kinds+1, v.Claim.ID, v.Claim.Name
	}
	switch {
	case kinds != 1:
		return "", "", errors.New("a volume must be one of temp, host and claim")
	case id == "" && name == "":
		return "", "", errors.New("a volume has neither id nor name")
	}
	return id, name, nil
}

// volumesOf converts the volumes of the transaction to volumes of the pod. Volumes with the
// same id become one.
func volumesOf(list []*stage.Volume) (map[string]*mountable, []corev1.Volume, error) {
	workspace := &mountable{volume: corev1.Volume{Name: volumeWorkspace}}
	byName, volumes := map[string]*mountable{stage.WorkspaceVolume: workspace}, []corev1.Volume(nil)
	for i, v := range list {
		if v == nil {
			continue
		}
		id, name, err := named(v)
		if err != nil {
			return nil, nil, err
		}
		m := byName[id]
		if m == nil || m == workspace || id == "" {
			if m, err = mountableOf(v, "v"+strconv.Itoa(i)+"-"+recorded.Slug(name, slugLength)); err != nil {
				return nil, nil, fmt.Errorf("volume %q: %w", firstOf(name, id), err)
			}
			volumes = append(volumes, m.volume)
		}
		for _, key := range []string{id, name} {
			if key != "" {
				byName[key] = m
			}
		}
	}
	return byName, volumes, nil
}

func mountableOf(v *stage.Volume, name string) (*mountable, error) {
	m := &mountable{volume: corev1.Volume{Name: name}}
	switch {
	case v.Temp != nil:
		m.volume.EmptyDir = emptyDir(v.Temp.Medium == "memory", v.Temp.SizeLimit)
	case v.Host != nil:
		if !path.IsAbs(v.Host.Path) {
			return nil, fmt.Errorf("the host directory %q is not an absolute path", v.Host.Path)
		}
		if v.Host.Remove {
			return nil, errors.New("a pod cannot remove a directory of its node: use a temp volume, or leave remove out")
		}
		kind := corev1.HostPathDirectory
		if v.Host.Create {
			kind = corev1.HostPathDirectoryOrCreate
		}
		m.volume.HostPath = &corev1.HostPathVolumeSource{Path: v.Host.Path, Type: &kind}
		m.readOnly = v.Host.ReadOnly
	default:
		if v.Claim.Claim == "" {
			return nil, errors.New("the claim has no name")
		}
		m.volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Claim.Claim, ReadOnly: v.Claim.ReadOnly}
		m.readOnly = v.Claim.ReadOnly
	}
	return m, nil
}

func emptyDir(memory bool, limit int64) *corev1.EmptyDirVolumeSource {
	e := &corev1.EmptyDirVolumeSource{}
	if memory {
		e.Medium = corev1.StorageMediumMemory
	}
	if limit > 0 {
		e.SizeLimit = resource.NewQuantity(limit, resource.BinarySI)
	}
	return e
}

// ownVolumes returns the volumes that each pod has.
func (d *Driver) ownVolumes(socket bool) []corev1.Volume {
	list := []corev1.Volume{
		{Name: volumeBin, VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(false, 0)}},
		{Name: volumeControl, VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(false, 0)}},
		{Name: volumeWork, VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(false, 0)}},
		{Name: volumeMemory, VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(true, 0)}},
		{Name: volumeWorkspace, VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(false, 0)}},
	}
	for _, name := range d.spares(false) {
		list = append(list, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(false, 0)}})
	}
	for _, name := range d.spares(true) {
		list = append(list, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: emptyDir(true, 0)}})
	}
	if socket {
		kind := corev1.HostPathSocket
		list = append(list, corev1.Volume{Name: volumeSocket, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: dockerSocket, Type: &kind},
		}})
	}
	return list
}

// spares returns the names of the spare volumes.
func (d *Driver) spares(memory bool) []string {
	n, prefix := d.cfg.SpareVolumes, spareDisk
	if memory {
		n, prefix = (n+1)/2, spareMemory
	}
	var list []string
	for i := range n {
		list = append(list, prefix+strconv.Itoa(i))
	}
	return list
}

// ownMounts returns the mounts of each step container.
func ownMounts(socket bool) []corev1.VolumeMount {
	list := []corev1.VolumeMount{
		{Name: volumeBin, MountPath: podagent.BinDir, ReadOnly: true},
		{Name: volumeWork, MountPath: podagent.WorkDir},
		{Name: volumeMemory, MountPath: podagent.MemoryDir},
		{Name: volumeWorkspace, MountPath: podagent.Workspace},
	}
	if socket {
		list = append(list, corev1.VolumeMount{Name: volumeSocket, MountPath: dockerSocket})
	}
	return list
}

// mounts returns the mounts of a step.
func mounts(step *stage.Step, volumes map[string]*mountable) ([]corev1.VolumeMount, error) {
	var list []corev1.VolumeMount
	for _, m := range step.Volumes {
		if m == nil {
			return nil, errors.New("a volume mount is null")
		}
		v := volumes[m.Name]
		if v == nil {
			return nil, fmt.Errorf("volume %q is not a volume of the transaction or of the step", m.Name)
		}
		if !path.IsAbs(m.Path) {
			return nil, fmt.Errorf("volume %q: the path %q is not absolute", m.Name, m.Path)
		}
		list = append(list, corev1.VolumeMount{Name: v.volume.Name, MountPath: path.Clean(m.Path), ReadOnly: v.readOnly})
	}
	return list, nil
}

// assignSpareVolumes assigns a spare volume to each volume that the init did not name. The
// hub stores the assignment for later steps with the same volume.
func (p *pod) assignSpareVolumes(ctx context.Context, list []*stage.Volume, volumes map[string]*mountable) error {
	for _, v := range list {
		if v == nil {
			continue
		}
		id, name, err := named(v)
		if err != nil {
			return err
		}
		if m := volumes[firstOf(id, name)]; m != nil {
			volumes[firstOf(name, id)] = m
			continue
		}
		if v.Temp == nil {
			return fmt.Errorf("volume %q: the volumes of a pod cannot be changed: add it to the init, because a step can add only temp volumes", firstOf(name, id))
		}
		var got podagent.Spared
		wish := podagent.Spare{ID: firstOf(id, name), Of: p.d.spares(v.Temp.Medium == "memory")}
		if err := p.callAgain(ctx, "POST", "/spares", wish, &got); err != nil {
			return fmt.Errorf("volume %q: %w", firstOf(name, id), err)
		}
		if got.Name == "" {
			return fmt.Errorf("volume %q: the pod has no spare volume left: add it to the init, or raise SpareVolumes", firstOf(name, id))
		}
		m := &mountable{volume: corev1.Volume{Name: got.Name}}
		for _, key := range []string{id, name} {
			if key != "" {
				volumes[key] = m
			}
		}
	}
	return nil
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
