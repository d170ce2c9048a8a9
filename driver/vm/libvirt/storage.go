package libvirt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/digitalocean/go-libvirt"
)

// volume returns the name of a machine's disk.
func volume(machine string) string { return machine + ".qcow2" }

// diskPath returns the path of a machine's future disk.
func (p *libvirtProvider) diskPath(daemon *libvirt.Libvirt, machine string) (string, error) {
	pool, err := daemon.StoragePoolLookupByName(p.config.Pool)
	if err != nil {
		return "", fmt.Errorf("find the storage pool %s: %w", p.config.Pool, err)
	}
	text, err := daemon.StoragePoolGetXMLDesc(pool, 0)
	if err != nil {
		return "", fmt.Errorf("read the storage pool %s: %w", p.config.Pool, err)
	}
	var description struct {
		Path string `xml:"target>path"`
	}
	if err := xml.Unmarshal([]byte(text), &description); err != nil || description.Path == "" {
		return "", fmt.Errorf("the storage pool %s is not a directory pool", p.config.Pool)
	}
	return filepath.Join(description.Path, volume(machine)), nil
}

// makeDisk creates an overlay of the image, of the same size.
func (p *libvirtProvider) makeDisk(daemon *libvirt.Libvirt, machine string) error {
	pool, err := daemon.StoragePoolLookupByName(p.config.Pool)
	if err != nil {
		return fmt.Errorf("find the storage pool %s: %w", p.config.Pool, err)
	}
	type format struct {
		Type string `xml:"type,attr"`
	}
	text, err := xml.Marshal(struct {
		XMLName xml.Name `xml:"volume"`
		Name    string   `xml:"name"`
		Format  format   `xml:"target>format"`
		Below   string   `xml:"backingStore>path"`
		BelowIs format   `xml:"backingStore>format"`
	}{Name: volume(machine), Format: format{"qcow2"}, Below: p.config.Image, BelowIs: format{p.config.ImageFormat}})
	if err != nil {
		return err
	}
	if _, err := daemon.StorageVolCreateXML(pool, string(text), 0); err != nil {
		return fmt.Errorf("create the machine's disk: %w", err)
	}
	return nil
}

// deleteDisk deletes a machine's disk. A missing disk or storage pool is no error.
func (p *libvirtProvider) deleteDisk(daemon *libvirt.Libvirt, machine string) error {
	pool, err := daemon.StoragePoolLookupByName(p.config.Pool)
	if is(err, libvirt.ErrNoStoragePool) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the storage pool %s: %w", p.config.Pool, err)
	}
	disk, err := daemon.StorageVolLookupByName(pool, volume(machine))
	if err == nil {
		err = daemon.StorageVolDelete(disk, 0)
	}
	if err != nil && !is(err, libvirt.ErrNoStorageVol) {
		return fmt.Errorf("delete the machine's disk: %w", err)
	}
	return nil
}

// is reports whether the daemon's error has one of the codes.
func is(err error, codes ...libvirt.ErrorNumber) bool {
	var failure libvirt.Error
	if !errors.As(err, &failure) {
		return false
	}
	for _, c := range codes {
		if failure.Code == uint32(c) {
			return true
		}
	}
	return false
}
