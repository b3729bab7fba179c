# SPDX-License-Identifier: MIT
# The Debian packages, by CPack.  Dependencies on libraries are found by dpkg-shlibdeps.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME latentd)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "the latentd developers <developers@latentd.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_SET_DESTDIR ON) # the units hold the paths of the installation
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
	GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL latentd liblatent0 liblatent-dev)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

set(control ${PROJECT_SOURCE_DIR}/debian/latentd)
set(CPACK_DEBIAN_LATENTD_PACKAGE_NAME latentd)
set(CPACK_DEBIAN_LATENTD_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LATENTD_PACKAGE_CONTROL_EXTRA ${control}/postinst ${control}/prerm
	${control}/postrm ${control}/conffiles)
set(CPACK_DEBIAN_LATENTD_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_LATENTD_PACKAGE_DEPENDS
	"systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
set(CPACK_DEBIAN_LATENTD_PACKAGE_RECOMMENDS openmpi-bin) # starts more than one rank
set(CPACK_COMPONENT_LATENTD_DESCRIPTION
"inference of mixture-of-experts models from GGUF files
The program latent reads GGUF files of DeepSeek, Kimi-K2, GLM and other models
with multi-head latent attention, plans where their tensors go, and runs them.
The daemon latentd serves one to many clients at once; requests it has accepted
survive its restarts.")

set(CPACK_DEBIAN_LIBLATENT0_PACKAGE_NAME liblatent0)
set(CPACK_DEBIAN_LIBLATENT0_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBLATENT0_DESCRIPTION
"client library of the inference daemon latentd
Requests that survive restarts, and streams of which every token is read once.")

set(CPACK_DEBIAN_LIBLATENT-DEV_PACKAGE_NAME liblatent-dev)
set(CPACK_DEBIAN_LIBLATENT-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBLATENT-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIBLATENT-DEV_PACKAGE_DEPENDS
	"liblatent0 (= ${PROJECT_VERSION}), libprotobuf-c-dev")
set(CPACK_COMPONENT_LIBLATENT-DEV_DESCRIPTION
"development files of liblatent
Header, archive, pkg-config file and manual page of the client library of the
inference daemon latentd, and its protocol as latentd.proto.")
include(CPack)
