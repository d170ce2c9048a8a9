//go:build !linux

package vm_test

const victimEnv = "DLITE_TEST_VM_VICTIM"

func removeShared() {}

func victim() { panic("machines that are processes need Linux") }
