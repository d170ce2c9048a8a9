//go:build unix

package atomicfile

import (
	"errors"
	"fmt"
	"os"
)

// SyncDir returns when the names in a folder, and that a name is gone, are on the
// disk. It does nothing where the system has no such thing: NTFS logs a new name
// with the file, and a folder cannot be flushed.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("make names durable: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("make names durable: %w", err)
	}
	return nil
}
