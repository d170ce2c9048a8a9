package source

// The types of the tasks.
const (
	// TypeGit is the perpetual task that watches the branches and tags of a Git repository: GitConfig to GitEvent.
	TypeGit = "source/git"
	// TypeRegistry is the perpetual task that watches the tags of an image repository: RegistryConfig to RegistryEvent.
	TypeRegistry = "source/registry"
	// TypeStatus is the task that reports the status of a commit to its provider: StatusRequest to StatusAnswer.
	TypeStatus = "git/status"
)

// Auth are credentials. The manager writes references to secrets in place of values; the delegate resolves them.
type Auth struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// Key is a private key in the PEM form of OpenSSH, for Git over SSH. Passphrase decrypts it.
	Key        string `json:"key,omitempty"`
	Passphrase string `json:"passphrase,omitempty"`
}

// GitConfig is the configuration of TypeGit.
type GitConfig struct {
	// URL is an address with the scheme https, http or ssh, or of the form user@host:path.
	URL  string `json:"url"`
	Auth *Auth  `json:"auth,omitempty"`
	// HostKeys are the lines of a known_hosts file for SSH. Empty means the file of the delegate's user.
	HostKeys string `json:"host_keys,omitempty"`
	// Branches and Tags are patterns, as Compile describes them. Empty means none.
	Branches []string `json:"branches,omitempty"`
	Tags     []string `json:"tags,omitempty"`
}

// RegistryConfig is the configuration of TypeRegistry.
type RegistryConfig struct {
	// Repository is the name of an image without tag, with the host of its registry unless it is on Docker Hub.
	Repository string `json:"repository"`
	Auth       *Auth  `json:"auth,omitempty"`
	// Insecure permits HTTP without TLS.
	Insecure bool `json:"insecure,omitempty"`
	// Tags are patterns of tags that are events when they appear. Empty means none.
	Tags []string `json:"tags,omitempty"`
	// Digests are tags that are events when they get another digest.
	Digests []string `json:"digests,omitempty"`
}

// GitEvent reports that a branch or a tag is new, or has another commit.
type GitEvent struct {
	// ID is different for each event of all tasks.
	ID         string `json:"id"`
	Repository string `json:"repository"`
	// Ref is the whole name, for example refs/heads/main.
	Ref string `json:"ref"`
	// Old is the previous commit, or empty. New is the present one. Of an annotated tag it is the commit that the tag names.
	Old string `json:"old,omitempty"`
	New string `json:"new"`
}

// RegistryEvent reports that a tag is new, or has another digest.
type RegistryEvent struct {
	// ID is different for each event of all tasks.
	ID         string `json:"id"`
	Repository string `json:"repository"`
	Tag        string `json:"tag"`
	Digest     string `json:"digest,omitempty"`
	// Old is the previous digest, or empty if the tag is new.
	Old string `json:"old,omitempty"`
}
