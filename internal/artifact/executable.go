package artifact

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/delegate-io/dlite/task/stage"
)

// Choose returns the program for a platform, and checks that it can be fetched. Its errors quote no
// URL.
func Choose(list []stage.Executable, goos, goarch string) (*stage.Executable, error) {
	var platforms []string
	for i, e := range list {
		if e.OS == goos && e.Arch == goarch {
			return &list[i], check(&list[i])
		}
		platforms = append(platforms, e.OS+"/"+e.Arch)
	}
	if len(platforms) == 0 {
		platforms = []string{"nothing"}
	}
	return nil, fmt.Errorf("there is no program for %s/%s; there is %s", goos, goarch, strings.Join(platforms, ", "))
}

func check(exe *stage.Executable) error {
	if exe.SHA256 != "" {
		if sum, err := hex.DecodeString(exe.SHA256); err != nil || len(sum) != 32 {
			return errors.New("sha256 must be 64 hexadecimal digits")
		}
	}
	return CheckURL(exe.URL)
}

// CheckURL rejects a URL that Fetch cannot download. Its error does not quote the URL.
func CheckURL(s string) error {
	if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("url must begin with http:// or https:// and a host")
	}
	return nil
}
