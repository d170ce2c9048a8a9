//go:build unix

package atomicfile

import (
	"errors"
	"fmt"
	"os"
)

// SyncDir returns when the names in a directory, and removals of names, are on the disk. On Windows it
// does nothing: NTFS logs a new name with the file, and a directory cannot be flushed.
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
