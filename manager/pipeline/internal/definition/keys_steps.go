package definition

// containerKeys are the keys of steps that run in a container or on the host.
func containerKeys() []key {
	return []key{
		text("connectorRef", "The connector of the registry."),
		text("registryRef", "The registry, if there is no connectorRef: a connector of that name."),
		text("image", "The image; without one the step runs on the host of the stage."),
		words("imagePullPolicy", "When the image is pulled.", "Always", "Never", "IfNotPresent"),
		boolean("privileged", "Runs privileged."),
		text("runAsUser", "The user id."),
		nested("resources", "resources", "Limits of the step."),
		pairs("envVariables", "The environment of the step."),
	}
}

// scriptKeys are the keys of steps that run a script.
func scriptKeys() []key {
	return append(containerKeys(),
		text("command", "The script."),
		words("shell", "The shell of the script.", "Sh", "Bash", "Powershell", "Pwsh", "Python"),
		items("outputVariables", "output variable", "Variables that the script exports for later steps."),
		nested("outputAlias", "output alias", "A second name of the outputs, for exportedVariables.getValue."),
		nested("reports", "reports", "Reports of tests."),
	)
}

// pluginKeys are the keys of the steps that run a built-in image.
func pluginKeys(keys ...key) []key {
	return append([]key{
		text("connectorRef", "The connector with the address and the credentials."),
		text("runAsUser", "The user id."),
		nested("resources", "resources", "Limits of the step."),
		words("imagePullPolicy", "When the image is pulled.", "Always", "Never", "IfNotPresent"),
		boolean("privileged", "Runs privileged."),
		pairs("envVariables", "The environment of the step."),
	}, keys...)
}

// imageKeys are the keys of the steps that build and push an image.
func imageKeys(keys ...key) []key {
	return pluginKeys(append([]key{
		needed(list("tags", "The tags of the image.")),
		text("dockerfile", "The Dockerfile."),
		text("context", "The directory of the build."),
		pairs("buildArgs", "Arguments of the build."),
		pairs("labels", "Labels of the image."),
		text("target", "The stage of the Dockerfile."),
		boolean("caching", "Uses the layer cache."),
		list("cacheFrom", "Images whose layers are reused."),
		text("cacheTo", "The image that takes the layers."),
		text("remoteCacheRepo", "The repository of the layer cache."),
		ignored("remoteCacheImage", "write remoteCacheRepo"),
		boolean("optimize", "Takes faster snapshots."),
		ignored("baseImageConnectorRefs", "base images are pulled with the credentials of connectorRef"),
		pairs("envDockerSecrets", "Secrets of the build from the environment."),
		pairs("fileDockerSecrets", "Secrets of the build from files."),
	}, keys...)...)
}

// cacheKeys are the keys of the steps for caches.
func cacheKeys(keys ...key) []key {
	return pluginKeys(append([]key{
		needed(text("bucket", "The bucket.")),
		needed(text("key", "The key of the cache.")),
		words("archiveFormat", "The format of the archive.", "Tar", "Gzip", "Zstd"),
	}, keys...)...)
}

// anyCacheKeys are the keys of the steps for caches that name their storage.
func anyCacheKeys(keys ...key) []key {
	return pluginKeys(append([]key{
		words("providerType", "The storage: Harness is the bucket of the operator.", "Harness", "S3", "Gcs"),
		text("bucket", "The bucket, for S3 and Gcs."),
		needed(text("key", "The key of the cache.")),
		words("archiveFormat", "The format of the archive.", "Tar", "Gzip", "Zstd"),
	}, append(s3Keys(), keys...)...)...)
}

func saveKeys() []key {
	return []key{
		needed(list("sourcePaths", "The files and directories of the cache.")),
		boolean("override", "Replaces a cache with the same key."),
	}
}

func restoreKey() key {
	return boolean("failIfKeyNotFound", "Fails without a cache of that key.")
}

func s3Keys() []key {
	return []key{
		text("region", "The region of the bucket."),
		text("endpoint", "The address of the server, if it is not AWS."),
		boolean("pathStyle", "Puts the bucket into the path."),
	}
}

func uploadKeys(keys ...key) []key {
	return pluginKeys(append([]key{
		needed(text("sourcePath", "The files.")),
		text("target", "The place in the bucket or repository."),
	}, keys...)...)
}

// testKeys are the keys of RunTests. The whole command line is args.
func testKeys() []key {
	return append(scriptKeys(),
		text("language", "The language; the build tool decides what runs."),
		text("buildTool", "The build tool, for example Maven, Gradle, Bazel, Pytest."),
		text("args", "The arguments of the build tool."),
		text("preCommand", "A script before the tests."),
		text("postCommand", "A script after the tests."),
		ignored("packages", "all tests run: there is no selection"),
		ignored("runOnlySelectedTests", "all tests run: there is no selection"),
		ignored("enableTestSplitting", "all tests run: there is no splitting"),
		ignored("testAnnotations", "all tests run: there is no selection"),
		ignored("testSplitStrategy", "all tests run: there is no splitting"),
		ignored("testGlobs", "all tests run: there is no selection"),
		ignored("testRoot", "all tests run: there is no selection"),
		ignored("buildEnvironment", "the image decides"),
		ignored("frameworkVersion", "the image decides"),
		ignored("pythonVersion", "the image decides"),
		ignored("namespaces", "all tests run: there is no selection"),
	)
}

// stepSpecs returns the keys of the spec of each type of step.
func stepSpecs() map[string][]key {
	return map[string][]key{
		"Run":        scriptKeys(),
		"Background": append(scriptKeys(), list("entrypoint", "The command; it wins over command."), pairs("portBindings", "Ports of the host to ports of the container.")),
		"Plugin": append(containerKeys(),
			anything("settings", "Settings: each becomes the variable PLUGIN_NAME."),
			list("entrypoint", "The command instead of the image's entrypoint."),
			nested("reports", "reports", "Reports of tests."),
			ignored("uses", "the image decides"),
			items("outputVariables", "output variable", "Variables that the plugin writes for later steps.")),
		"GitClone": append(cloneKeys(),
			ignored("sparseCheckout", "the image of the step checks out the whole repository: use the codebase"),
			ignored("runAsUser", "the clone runs as the user of the delegate's clone"),
			ignored("resources", "the operator limits the clone"),
			ignored("outputFilePathsContent", "use a Run step with outputVariables")),
		"RunTests": testKeys(),
		"Test": append(scriptKeys(),
			ignored("intelligenceMode", "all tests run: there is no selection"),
			ignored("parallelism", "write strategy: {parallelism: N} beside spec"),
			ignored("globs", "all tests of the command run")),
		"BuildAndPushDockerRegistry": imageKeys(text("repo", "The repository of the image."), text("registryRef", "The registry, if there is no connectorRef: a connector of that name.")),
		"BuildAndPushECR": imageKeys(needed(text("account", "The AWS account.")), needed(text("imageName", "The name of the image.")),
			needed(text("region", "The region.")), text("registryRef", "The registry, if there is no connectorRef: a connector of that name.")),
		"BuildAndPushGCR": imageKeys(needed(text("host", "The registry, for example gcr.io.")), needed(text("imageName", "The name of the image.")),
			needed(text("projectID", "The project."))),
		"BuildAndPushGAR": imageKeys(needed(text("host", "The registry, for example us-docker.pkg.dev.")), needed(text("imageName", "The name of the image.")),
			needed(text("projectID", "The project."))),
		"BuildAndPushACR": imageKeys(needed(text("repository", "The repository of the image.")), ignored("subscriptionId", "the connector decides")),

		"RestoreCache":    anyCacheKeys(restoreKey()),
		"SaveCache":       anyCacheKeys(saveKeys()...),
		"RestoreCacheS3":  cacheKeys(append(s3Keys(), restoreKey())...),
		"SaveCacheS3":     cacheKeys(append(s3Keys(), saveKeys()...)...),
		"RestoreCacheGCS": cacheKeys(restoreKey()),
		"SaveCacheGCS":    cacheKeys(saveKeys()...),

		"S3Upload":          uploadKeys(append(s3Keys(), needed(text("bucket", "The bucket.")), ignored("stripPrefix", "names keep their path"))...),
		"GCSUpload":         uploadKeys(needed(text("bucket", "The bucket."))),
		"ArtifactoryUpload": uploadKeys(),
	}
}

// stepObjects are the objects of the types of steps.
func stepObjects() []object {
	objects := []object{
		{name: "output alias", keys: []key{
			needed(fixed(text("key", "The name: exportedVariables.getValue(\"pipeline.KEY.OUTPUT\") has an output."))),
			fixed(words("scope", "Where the name is known.", "Pipeline", "Stage", "StepGroup")),
		}},
		{name: "output variable", keys: []key{
			needed(fixed(text("name", "The name of the variable."))),
			fixed(words("type", "The type of the value.", "String", "Secret")),
			text("value", "The variable of the script, if it has another name."),
		}},
		{name: "reports", inner: "spec", keys: []key{
			fixed(words("type", "JUnit.", "JUnit")),
			nested("spec", "report paths", "Where the reports are."),
		}},
		{name: "report paths", keys: []key{
			list("paths", "Paths with * and **."),
		}},
	}
	for name, keys := range stepSpecs() {
		objects = append(objects, object{name: "step " + name, keys: keys})
	}
	return objects
}

// refusedSteps gives for types of steps that cannot run the advice of the error.
func refusedSteps() map[string]string {
	scanner := "use a Run or Plugin step with the image of the scanner, or add the type to types in the settings of the pipeline service"
	steps := map[string]string{
		"Action":            "actions need the runner of their service: write the commands as a Run step, use a Plugin step, or add the type to types in the settings of the pipeline service",
		"Bitrise":           "Bitrise steps need the runner of their service: write the commands as a Run step, or use a Plugin step",
		"ShellScript":       "it belongs to deployments: use a Run step",
		"Http":              "use a Run step with curl",
		"Email":             "use a Plugin step with an image that sends mail",
		"Wait":              "use a Run step with sleep",
		"Queue":             "it belongs to deployments: limit the runs of the pipeline instead",
		"RestoreCacheAzure": "use RestoreCacheS3 or RestoreCacheGCS, or a Plugin step",
		"SaveCacheAzure":    "use SaveCacheS3 or SaveCacheGCS, or a Plugin step",
		"Barrier":           "it belongs to deployments: use dependsOn between stages",
	}
	for _, name := range []string{"Security", "Semgrep", "Owasp", "AquaTrivy", "AquaSecurity", "Bandit", "BlackDuck", "Brakeman", "Burp",
		"Checkmarx", "Checkov", "Clair", "CodeQL", "Coverity", "FossId", "Fortify", "GithubAdvancedSecurity", "Gitleaks", "Grype", "JfrogXray", "Mend", "Metasploit", "Nessus", "NexusIQ", "Nikto",
		"Nmap", "OsvScanner", "Prowler", "Snyk", "Sonarqube", "Sysdig", "Traceable", "Twistlock", "Veracode", "Wiz", "Zap"} {
		steps[name] = scanner
	}
	return steps
}
