# Run by cpack when everything is in place and nothing is packed: what Debian's policy wants of each package.
cmake_policy(SET CMP0057 NEW)

set(debian_name_reef ${CPACK_REEF_PROGRAMS})
set(debian_name_library libreef0)
set(debian_name_dev libreef-dev)
set(debian_name_python python3-reef)

# Dates are those of the notes of the release, not of today, or what SOURCE_DATE_EPOCH says.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
    set(date_of_build $ENV{SOURCE_DATE_EPOCH})
else()
    file(TIMESTAMP ${CPACK_REEF_SOURCE}/CHANGELOG.md date_of_build "%s" UTC)
endif()
execute_process(COMMAND date -u -R -d @${date_of_build} OUTPUT_VARIABLE when OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)

function(pack file)
    execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    set(root ${CPACK_TEMPORARY_DIRECTORY}/${component})
    if(NOT DEFINED debian_name_${component})
        message(FATAL_ERROR "no package is known for the component ${component}; see package/debian/CMakeLists.txt")
    endif()
    set(name ${debian_name_${component}})
    set(doc ${root}/usr/share/doc/${name})

    file(MAKE_DIRECTORY ${doc})
    configure_file(${CPACK_REEF_SOURCE}/package/debian/copyright ${doc}/copyright COPYONLY)
    configure_file(${CPACK_REEF_SOURCE}/CHANGELOG.md ${doc}/changelog COPYONLY)
    file(WRITE ${doc}/changelog.Debian
        "reef (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
        "  * Packages that cpack makes; news are in changelog.gz.\n\n"
        " -- ${CPACK_PACKAGE_CONTACT}  ${when}\n")
    pack(${doc}/changelog)
    pack(${doc}/changelog.Debian)
    configure_file(${CPACK_REEF_SOURCE}/package/debian/lintian-overrides ${root}/usr/share/lintian/overrides/${name} COPYONLY)

    file(GLOB_RECURSE manuals ${root}/usr/share/man/*.[1-9])
    foreach(manual IN LISTS manuals)
        pack(${manual})
    endforeach()
    file(GLOB_RECURSE archives ${root}/usr/lib/*.a) # cpack strips programs and shared libraries only
    foreach(archive IN LISTS archives)
        execute_process(COMMAND ${CPACK_REEF_STRIP} --strip-debug --enable-deterministic-archives ${archive}
            COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
endforeach()
