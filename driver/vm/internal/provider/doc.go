// Package provider is what the providers of package vm on QEMU and libvirt have in common.
package provider
